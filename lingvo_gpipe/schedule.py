"""Schedules as data: which stage does what, when.

`FillDrain`: every micro-batch goes forward through all stages, then, the last
first, back through them (GPipe, figure 2c). A stage does one thing at a time.
For 3 stages and 4 micro-batches, F a forward pass, R its recomputation, B a
backward pass:

    stage 2  .  .  F0 F1 F2 F3 R3 B3 B3 R2 B2 B2 R1 B1 B1 ...
    stage 1  .  F0 F1 F2 F3 R3 .  .  .  B3 B3 R2 B2 B2 R1 ...
    stage 0  F0 F1 F2 F3 R3 .  .  .  .  .  .  B3 B3 R2 B2 ...

A stage recomputes before the gradient arrives, as soon as it is free.

`OneForwardOneBackward`: a micro-batch goes back as soon as it has come through
(PipeDream-flush, arXiv 2006.09503), and only so many are under way at a time:

    stage 2  .  .  F0 B0 B0 F1 B1 B1 F2 B2 B2 F3 B3 B3
    stage 1  .  F0 F1 F2 F3 B0 B0 .  B1 B1 .  B2 B2 .  B3 B3
    stage 0  F0 F1 F2 F3 .  .  .  B0 B0 .  B1 B1 .  B2 B2 .  B3 B3
"""

from lingvo_gpipe import clock

RECOMPUTE_MODES = clock.RECOMPUTE_MODES
SCHEDULES = ('gpipe', '1f1b')  # As flags and params name them.


def FillDrain(num_stages, num_micro_batches, forward=1., backward=2.,
              recompute='always', transfer=0., num_devices=None, cores=None):
  """Returns GPipe's schedule.

  Args:
    num_stages: K.
    num_micro_batches: M.
    forward: How long a stage takes for a micro-batch's forward pass: a number,
      or a list of K.
    backward: How long it takes to take gradients, likewise.
    recompute: `always`, `never`, `except_last` (all but the last micro-batch),
      or which share of the forward pass is run again, 0..1, a number or a list
      of K.
    transfer: How long a micro-batch takes from a stage to the next, and its
      gradient back: a number, or a list of K - 1. Stages go on meanwhile, but
      each of the two directions carries one at a time.
    num_devices: D. Stage k is on device k modulo D, which does one thing at a
      time. None: as many as stages.
    cores: How many cores the devices share, where they are virtual ones of one
      CPU; see clock.SharedClock. None: each is a device by itself.

  Returns:
    A list of clock.Work, by stage and then by time.
  """
  return _Run(num_stages, num_micro_batches, forward, backward, recompute,
              transfer, num_devices, None, cores)


def OneForwardOneBackward(num_stages, num_micro_batches, forward=1.,
                          backward=2., recompute='never', transfer=0.,
                          num_devices=None, in_flight=None, cores=None):
  """Returns the schedule with the loss inside the loop.

  Args:
    num_stages: K.
    num_micro_batches: M.
    forward: See FillDrain; so the following ones.
    backward: ...
    recompute: ...
    transfer: ...
    num_devices: ...
    in_flight: How many micro-batches may be under way, from their entry into
      stage 0 to the end of its backward pass. None: K + 1.
    cores: See FillDrain.

  Returns:
    A list of clock.Work, by stage and then by time.
  """
  return _Run(num_stages, num_micro_batches, forward, backward, recompute,
              transfer, num_devices, in_flight or num_stages + 1, cores)


def _Run(*args):
  *args, cores = args
  if cores:
    return clock.SharedClock(cores, *args).Run()
  return clock.Clock(*args).Run()


def StepTime(work):
  """When the last of the work ends."""
  return max(w.end for w in work)


def BubbleFraction(work):
  """The share of the devices' time, 0..1, that they spend waiting.

  For D devices with v equal stages each, without recomputation, GPipe's is
  (D - 1) / (v M + D - 1).
  """
  span = StepTime(work) * len({w.device for w in work})
  return 1. - sum(w.end - w.start for w in work) / span


def MostInFlight(work):
  """For each stage, the most micro-batches that it holds at a time.

  One is held from the start of its forward pass to the end of its backward
  pass.
  """
  num_stages = 1 + max(w.stage for w in work)
  held, most = [0] * num_stages, [0] * num_stages
  changes = [(w.end, -1, w.stage) for w in work if w.kind == 'backward']
  changes += [(w.start, 1, w.stage) for w in work if w.kind == 'forward']
  for _, change, stage in sorted(changes):
    held[stage] += change
    most[stage] = max(most[stage], held[stage])
  return most
