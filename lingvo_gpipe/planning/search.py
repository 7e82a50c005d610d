"""Which number of stages and micro-batches, and which recompute mode, is best."""

import itertools

from lingvo_gpipe import fill_drain
from lingvo_gpipe.planning import candidate

# Of choices whose steps are as long as the shortest, up to this share, the one
# with the fewest micro-batches is taken: large ones run faster than their FLOPs
# tell.
_AS_FAST = 1.02

# The last stage doesn't recompute there anyway (one_f_one_b.py).
_SAME_AS_ALWAYS = ('except_last', '1f1b')


def Best(planner, num_stages, num_micro_batches, recompute, schedules):
  """The fastest Plan that fits.

  Args:
    planner: A candidate.Planner.
    num_stages: A list of numbers to choose from.
    num_micro_batches: Likewise.
    recompute: A list of modes.
    schedules: A list of schedules.

  Returns:
    A Plan. If none fits, the one that needs the least memory on its largest
    device.
  """
  choices = [
      candidate.Choice(*c) for c in itertools.product(
          num_stages, num_micro_batches, recompute, schedules)
      if len(recompute) == 1 or c[2:] != _SAME_AS_ALWAYS
  ]
  fitting, others = [], []
  shortest = float('inf')
  for choice in sorted(choices, key=planner.LeastSeconds):
    if planner.LeastSeconds(choice) > shortest * _AS_FAST:
      break
    plan = planner.Make(choice)
    (fitting if plan.fits else others).append(plan)
    if plan.fits:
      shortest = min(shortest, plan.step_seconds)
  if not fitting:
    return min(others, key=lambda p: max(s.total_bytes / s.limit for s in p.stages))
  return min((p for p in fitting if p.step_seconds <= shortest * _AS_FAST),
             key=lambda p: (p.choice.num_micro_batches, p.step_seconds))


def Divisors(batch):
  """The numbers of micro-batches that a mini-batch splits into evenly."""
  return [m for m in range(1, batch + 1) if batch % m == 0]


def Modes(planner, choice, schedules):
  """A Plan for each recompute mode and schedule, at a choice's K and M."""
  return [
      planner.Make(
          candidate.Choice(choice.num_stages, choice.num_micro_batches, mode, s))
      for s in schedules for mode in fill_drain.RECOMPUTE_MODES
      if (mode, s) != _SAME_AS_ALWAYS
  ]
