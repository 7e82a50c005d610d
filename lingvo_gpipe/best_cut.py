"""The best cut of a sequence of costs into contiguous stages: dynamic programs.

They are over (stages so far, layers so far), with numpy over all ends and starts
at once. Starts that are too far from their end to be in a best cut are left out.
"""

import dataclasses
import functools
from typing import Callable, Sequence

import numpy as np

from lingvo_gpipe import amounts

# Sums of floats differ in their last bits with the order of addition.
_EQUAL = 1 + 1e-9


@dataclasses.dataclass(frozen=True)
class Memory:
  """What stages need, and what devices have.

  Stage k needs fixed + in_flight[k] * held.

  Attributes:
    fixed: (starts, ends) -> bytes: two arrays of ints, to a float array of that
      shape. More layers at the end of a stage don't need less.
    held: Likewise, the bytes for each micro-batch that a stage holds.
    in_flight: For each stage, how many micro-batches that are.
    limits: The bytes of each stage's device.
  """
  fixed: Callable
  held: Callable
  in_flight: Sequence[float]
  limits: Sequence[float]


class MemoryLimitError(ValueError):
  """No cut fits."""

  def __init__(self, problem, limits):
    super().__init__()
    self._problem = problem
    self._limits = limits

  @functools.cached_property
  def needed(self):
    """The limits with which a cut would fit: these, scaled by one number."""
    return self._problem.LimitsNeeded()

  def __str__(self):
    return (
        f'No cut into num_stages={len(self._limits)} fits into '
        f'{amounts.Format(max(self._limits), "B")} a device: the smallest limit '
        f'that would do is {amounts.Format(max(self.needed), "B")}. Use more '
        'stages, smaller micro-batches, recomputation, or devices with more '
        'memory.')


class Problem:
  """One instance: layers to be cut, and what is asked of the cut."""

  def __init__(self, costs, num_stages, speeds, boundary_bytes, memory):
    """Constructor.

    Args:
      costs: The cost of each layer, numbers >= 0.
      num_stages: The number of stages, at most that of layers.
      speeds: The speed of each stage's device: it takes the time cost / speed.
      boundary_bytes: The bytes of each layer's input; None: all are equal.
      memory: A Memory, or None.
    """
    self._n = len(costs)
    self._num_stages = num_stages
    self._total = np.append(0., np.cumsum(np.asarray(costs, np.float64)))
    self._speeds = np.asarray(speeds, np.float64)
    self._memory = memory
    self._boundary = np.zeros(self._n)
    if boundary_bytes is not None:
      self._boundary = np.asarray(boundary_bytes, np.float64)

  def Largest(self):
    """The largest stage's time in the best cut; raises MemoryLimitError."""
    if self._memory and not _Reaches(self._furthest, self._n):
      raise MemoryLimitError(self, self._memory.limits)
    total, slowest = self._total[-1], self._speeds.min()
    most = total / slowest
    bound = total / self._speeds.sum() + np.diff(self._total).max() / slowest
    while True:
      largest, _ = self._Best(np.maximum, bound)
      if np.isfinite(largest) or not bound < most:
        return largest
      bound *= 2  # What fits needs larger stages.

  def Squares(self, largest):
    """The cut with the least sum of squares whose stages are <= largest."""
    return self._Best(lambda a, b: a + np.square(b), largest * _EQUAL)[1]

  def LimitsNeeded(self):
    """The limits, all scaled by one number, with which a cut would fit."""
    memory = self._memory
    share, scale = np.inf, 1.
    while share > scale:
      scale *= 2
      band = _Band(
          self._n, max(map(_Longest, _Furthest(memory, self._n, scale))))
      fixed, held = memory.fixed(*band), memory.held(*band)
      share, _ = _Solve(*band, [
          (fixed + k_held * held) / limit
          for k_held, limit in zip(memory.in_flight, memory.limits)
      ], np.maximum, self._boundary)
    return [share * limit for limit in memory.limits]

  @functools.cached_property
  def _furthest(self):
    return _Furthest(self._memory, self._n)

  def _Best(self, combine, bound):
    """The best cut with stages <= bound; (its score or inf, its stages)."""
    first = np.searchsorted(
        self._total, self._total - bound * _EQUAL**2 * self._speeds.max())
    width = int(np.max(np.arange(self._n + 1) - first))
    furthest = [None] * self._num_stages
    if self._memory:
      furthest = self._furthest
      width = min(width, max(map(_Longest, furthest)))
    starts, ends = _Band(self._n, width)
    costs = self._total[ends] - self._total[starts]

    @functools.lru_cache(maxsize=None)
    def Time(speed, k):
      time = costs / speed
      allowed = time <= bound * _EQUAL
      if furthest[k] is not None:
        allowed &= ends <= furthest[k][starts]
      return np.where(allowed, time, np.inf)

    # Of stages that may be equally long, one stands for all.
    alike = {id(f): k for k, f in enumerate(furthest)}
    times = [
        Time(speed, alike[id(f)]) for speed, f in zip(self._speeds, furthest)
    ]
    return _Solve(starts, ends, times, combine, self._boundary)


def _Furthest(memory, n, scale=1.):
  """For each stage an int array [n + 1]: by its start, the last end that fits.

  Where not even one layer fits, that is the start.

  Args:
    memory: A Memory.
    n: The number of layers.
    scale: Limits are multiplied by it.
  """

  @functools.lru_cache(maxsize=None)
  def Of(in_flight, limit):
    starts = np.arange(n + 1)
    fit, too_far = starts, np.full(n + 1, n + 1)
    while np.any(too_far - fit > 1):  # Bisection, for all starts at once.
      middle = np.maximum((fit + too_far) // 2, np.minimum(starts + 1, n))
      needs = memory.fixed(starts, middle) + in_flight * memory.held(
          starts, middle)
      fits = needs <= limit * scale
      fit, too_far = np.where(fits, middle, fit), np.where(fits, too_far, middle)
    return fit

  return [Of(*stage) for stage in zip(memory.in_flight, memory.limits)]


def _Longest(furthest):
  return int(np.max(furthest - np.arange(len(furthest))))


def _Reaches(furthest, n):
  """Whether stages that end where they may can hold all layers."""
  reached = np.arange(n + 1) == 0
  for last in furthest:
    # The stages from all starts that were reached: +1 after each, -1 at the end.
    starts = np.flatnonzero(reached[:-1])
    inside = np.zeros(n + 2, int)
    np.add.at(inside, starts + 1, 1)
    np.add.at(inside, last[starts] + 1, -1)
    reached = np.cumsum(inside)[:-1] > 0
  return reached[n]


def _Band(n, width):
  """The starts and ends of all stages of up to `width` of n layers.

  Returns:
    Two arrays, [n, width], of at least one column: row i has the stages that
    end after layer i. Where there is none, start is end.
  """
  width = max(1, width)
  ends = np.arange(1, n + 1)[:, None]
  starts = ends - width + np.arange(width)[None, :]
  ends = np.broadcast_to(ends, starts.shape)
  return np.where(starts < 0, ends, starts), ends


def _Solve(starts, ends, stage_costs, combine, boundary_bytes):
  """The dynamic program.

  Args:
    starts: From _Band, [n, width].
    ends: Likewise.
    stage_costs: For each stage, its cost for each start and end; inf where that
      can't be.
    combine: (cost so far, cost of the next stage) -> cost.
    boundary_bytes: Of each layer's input, float [n]; breaks ties.

  Returns:
    (the least cost, the stages); (inf, None) where there is no cut.
  """
  n, width = starts.shape
  rows = np.arange(n)

  def ByStart(values):
    """values[starts], inf where there is no stage; [n, width] without a copy."""
    padded = np.concatenate([np.full(width - 1, np.inf), values[:n]])
    return np.lib.stride_tricks.sliding_window_view(padded, width)

  best = np.append(0., np.full(n, np.inf))
  crossed = np.zeros(n + 1)
  chosen = []
  for stage_cost in stage_costs:
    cost = combine(ByStart(best), stage_cost)
    least = np.min(cost, axis=1)
    tied = cost <= least[:, None] * _EQUAL
    bytes_crossed = np.where(
        tied, ByStart(crossed[:n] + boundary_bytes), np.inf)
    choice = np.argmin(bytes_crossed, axis=1)
    chosen.append(starts[rows, choice])
    best = np.append(np.inf, least)
    crossed = np.append(0., bytes_crossed[rows, choice])
  if not np.isfinite(best[n]):
    return np.inf, None
  stages, end = [], n
  for start in reversed(chosen):
    stages.append((int(start[end - 1]), end))
    end = stages[-1][0]
  return best[n], stages[::-1]
