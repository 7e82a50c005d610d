"""The fill-drain schedule as data: which stage does what, when.

Every micro-batch goes forward through all stages, then, the last first, back
through them (GPipe, figure 2c). A stage does one thing at a time. For 3 stages
and 4 micro-batches, F a forward pass, R its recomputation, B a backward pass:

    stage 2  .  .  F0 F1 F2 F3 R3 B3 B3 R2 B2 B2 R1 B1 B1 ...
    stage 1  .  F0 F1 F2 F3 R3 .  .  .  B3 B3 R2 B2 B2 R1 ...
    stage 0  F0 F1 F2 F3 R3 .  .  .  .  .  .  B3 B3 R2 B2 ...

A stage recomputes before the gradient arrives, as soon as it is free.
"""

import collections

# What a stage does from start to end (in the units of the durations given):
# kind is 'forward', 'recompute' or 'backward'.
Work = collections.namedtuple(
    'Work', ['stage', 'micro_batch', 'kind', 'start', 'end'])


def FillDrain(num_stages, num_micro_batches, forward=1., recompute=1.,
              backward=2.):
  """Returns the schedule of equal stages.

  Args:
    num_stages: K.
    num_micro_batches: M.
    forward: How long a stage takes for a micro-batch's forward pass.
    recompute: How long it takes to run it again; 0 without recomputation.
    backward: How long it takes to take gradients.

  Returns:
    A list of Work, by stage and then by time.
  """
  free = [0.] * num_stages
  work = [[] for _ in range(num_stages)]

  def Do(k, t, kind, duration, ready):
    start = max(free[k], ready)
    free[k] = start + duration
    if duration:
      work[k].append(Work(k, t, kind, start, free[k]))
    return free[k]

  for t in range(num_micro_batches):
    ready = 0.
    for k in range(num_stages):
      ready = Do(k, t, 'forward', forward, ready)
  for t in reversed(range(num_micro_batches)):
    ready = 0.
    for k in reversed(range(num_stages)):
      Do(k, t, 'recompute', recompute, 0.)
      ready = Do(k, t, 'backward', backward, ready)
  return [w for stage in work for w in stage]


def BubbleFraction(work):
  """The share of the stages' time, 0..1, that they spend waiting.

  For equal stages without recomputation it is (K - 1) / (M + K - 1).
  """
  stages = {w.stage for w in work}
  span = max(w.end for w in work) * len(stages)
  return 1. - sum(w.end - w.start for w in work) / span
