"""Cuts of a sequence of costs into contiguous stages: exact, or by a heuristic.

Layers are numbered from 0, and a stage is a pair (start, end). Stage k takes
the time cost / speeds[k]. The exact ones are dynamic programs over (stages so
far, layers so far), with numpy over all ends and starts at once; starts that
are too far from their end to be in a best cut are left out.
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
      shape.
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


def MinMax(costs, num_stages, speeds=None, boundary_bytes=None, memory=None):
  """The cut with the smallest largest stage.

  Among those that tie, the one with the smallest sum of squares (with equal
  speeds, the smallest variance), and then with the fewest bytes at its
  boundaries.

  Args:
    costs: The cost of each layer, numbers >= 0.
    num_stages: The number of stages, at most that of layers.
    speeds: The speed of each stage's device; None: all are 1.
    boundary_bytes: The bytes of each layer's input; None: all are equal.
    memory: A Memory, or None.

  Returns:
    A list of num_stages (start, end) pairs; none is empty.

  Raises:
    MemoryLimitError: no cut fits into the memory.
  """
  problem = _Problem(costs, num_stages, speeds, boundary_bytes, memory)
  return problem.Squares(problem.Largest())


def LeastVariance(costs, num_stages, speeds=None, boundary_bytes=None,
                  memory=None):
  """The cut with the smallest variance of costs, the paper's rule (section 2.2).

  Its largest stage may be larger than need be. Args, Returns and Raises: as
  MinMax's.
  """
  problem = _Problem(costs, num_stages, speeds, boundary_bytes, memory)
  largest = problem.Largest()
  # No stage of the best cut is above the root of another cut's sum of squares.
  return problem.Squares(largest * np.sqrt(num_stages))


def Histogram(costs, num_stages):
  """Lingvo's rule: a layer's stage is floor(share of all costs up to it * K).

  Args:
    costs: The cost of each layer.
    num_stages: K.

  Returns:
    A list of (start, end) pairs.

  Raises:
    ValueError: a stage is left without a layer.
  """
  total = _Cumulative(costs)[1:]
  place = np.minimum((total / (total[-1] or 1.) * num_stages).astype(int),
                     num_stages - 1)
  ends = np.searchsorted(place, np.arange(num_stages), side='right')
  stages = list(zip([0] + ends[:-1].tolist(), ends.tolist()))
  empty = [k for k, (start, end) in enumerate(stages) if start == end]
  if empty:
    raise ValueError(
        f"partition='histogram' leaves stages without layers: "
        f'{", ".join(map(str, empty))} of {num_stages}. Use '
        "partition='min_max', which never does, or fewer stages.")
  return stages


def Given(boundaries, num_layers, num_stages):
  """The cut before the layers that `boundaries` lists.

  Args:
    boundaries: The first layer of each stage but the first, a list of ints.
    num_layers: The number of layers.
    num_stages: The number of stages.

  Returns:
    A list of (start, end) pairs.

  Raises:
    ValueError: they don't make so many stages, or leave one empty.
  """
  if not all(isinstance(b, (int, np.integer)) for b in boundaries):
    raise ValueError(
        f'partition={list(boundaries)} must list numbers of layers, counted '
        'from 0.')
  cuts = [0, *map(int, boundaries), num_layers]
  if len(cuts) - 1 != num_stages:
    raise ValueError(
        f'partition={list(boundaries)} makes {len(cuts) - 1} stages (it lists '
        f'the first layer of each stage but the first), but num_stages is '
        f'{num_stages}. Set num_stages={len(cuts) - 1}, or list '
        f'{num_stages - 1} layers.')
  if any(a >= b for a, b in zip(cuts, cuts[1:])):
    raise ValueError(
        f'partition={list(boundaries)} leaves a stage without layers. There '
        f'are {num_layers} layers, so list numbers from 1 to '
        f'{num_layers - 1}, each larger than the one before.')
  return list(zip(cuts, cuts[1:]))


def Imbalance(stage_costs, speeds=None):
  """How much longer the slowest stage takes than if all took the same: 0.1 is 10%.

  Args:
    stage_costs: The cost of each stage.
    speeds: The speed of each stage's device; None: all are 1.
  """
  costs = np.asarray(stage_costs, np.float64)
  speeds = _Speeds(speeds, len(costs))
  even = costs.sum() / speeds.sum()
  return float(np.max(costs / speeds) / even - 1) if even else 0.


class _Problem:
  """One instance, and its dynamic programs."""

  def __init__(self, costs, num_stages, speeds, boundary_bytes, memory):
    self._n = len(costs)
    self._num_stages = num_stages
    self._total = _Cumulative(costs)
    self._speeds = _Speeds(speeds, num_stages)
    self._memory = memory
    self._boundary = np.zeros(self._n)
    if boundary_bytes is not None:
      self._boundary = np.asarray(boundary_bytes, np.float64).copy()
      self._boundary[0] = 0.  # The inputs have no boundary to cross.

  def Largest(self):
    """The largest stage's time in the best cut; raises MemoryLimitError."""
    total, slowest = self._total[-1], self._speeds.min()
    most = total / slowest
    bound = min(most, total / self._speeds.sum() +
                np.diff(self._total).max() / slowest)
    while True:
      largest, _ = self._Solve(np.maximum, bound)
      if largest <= bound * _EQUAL:
        return largest
      if bound >= most:
        raise MemoryLimitError(self, self._memory.limits)
      # A cut was found: the best one isn't above it. Or else none so small.
      bound = min(largest, 2 * bound or 1., most)

  def Squares(self, largest):
    """The cut with the least sum of squares whose stages are <= largest."""
    return self._Solve(lambda a, b: a + np.square(b), largest * _EQUAL)[1]

  def LimitsNeeded(self):
    """The limits, all scaled by one number, with which a cut would fit."""
    memory = self._memory
    share, scale = np.inf, 1.
    while share > scale:
      scale *= 2
      starts, ends = _Band(self._n, max(1, self._Longest(scale)))
      needs = _Needs(memory, starts, ends)
      share, _ = _Solve(starts, ends, self._num_stages,
                        lambda k, needs=needs: needs(k) / memory.limits[k],
                        np.maximum, np.zeros(self._n))
    return [share * limit for limit in memory.limits]

  @functools.cached_property
  def _LeastNeeds(self):
    """(the lengths of all stages that there could be, what each needs at least)."""
    starts, ends = _Band(self._n, self._n)
    least = dataclasses.replace(
        self._memory, in_flight=[min(self._memory.in_flight)])
    return ends - starts, _Needs(least, starts, ends)(0)

  def _Longest(self, scale=1.):
    """The most layers of any stage that fits, if limits are scaled."""
    if not self._memory:
      return self._n
    lengths, needs = self._LeastNeeds
    fit = needs <= scale * max(self._memory.limits)
    return int(np.max(lengths, where=fit, initial=0))

  def _Solve(self, combine, bound):
    """The best cut with stages <= bound; (its score or inf, its stages)."""

    first = np.searchsorted(
        self._total, self._total - bound * _EQUAL**2 * self._speeds.max())
    width = int(np.max(np.arange(self._n + 1) - first))
    starts, ends = _Band(self._n, max(1, min(width, self._Longest())))
    costs = self._total[ends] - self._total[starts]
    needs = self._memory and _Needs(self._memory, starts, ends)

    def Time(k):
      time = costs / self._speeds[k]
      allowed = time <= bound * _EQUAL
      if needs:
        allowed &= needs(k) <= self._memory.limits[k]
      return np.where(allowed, time, np.inf)

    return _Solve(starts, ends, self._num_stages, Time, combine, self._boundary)


def _Needs(memory, starts, ends):
  """stage -> the bytes it would need with any of the starts and ends."""
  fixed, held = memory.fixed(starts, ends), memory.held(starts, ends)
  return lambda k: fixed + memory.in_flight[k] * held


def _Band(n, width):
  """The starts and ends of all stages of up to `width` of n layers.

  Returns:
    Two arrays, [n, width]: row i has the stages that end after layer i. Where
    there is none, start is end.
  """
  ends = np.arange(1, n + 1)[:, None]
  starts = ends - width + np.arange(width)[None, :]
  ends = np.broadcast_to(ends, starts.shape)
  return np.where(starts < 0, ends, starts), ends


def _Solve(starts, ends, num_stages, stage_cost, combine, boundary_bytes):
  """The dynamic program.

  Args:
    starts: From _Band.
    ends: Likewise.
    num_stages: The number of stages.
    stage_cost: stage -> its cost for each start and end; inf where that can't
      be.
    combine: (cost so far, cost of the next stage) -> cost.
    boundary_bytes: Of each layer's input, float [n]; breaks ties.

  Returns:
    (the least cost, the stages); (inf, None) where there is no cut.
  """
  n = len(starts)
  rows = np.arange(n)
  nonempty = starts < ends
  # A stage that isn't there has no boundary either.
  boundary_bytes = np.append(boundary_bytes, 0.)
  best = np.concatenate([[0.], np.full(n, np.inf)])
  crossed = np.zeros(n + 1)
  chosen = []
  for k in range(num_stages):
    cost = combine(best[starts], np.where(nonempty, stage_cost(k), np.inf))
    least = np.min(cost, axis=1)
    tied = cost <= least[:, None] * _EQUAL
    bytes_crossed = np.where(tied, crossed[starts] + boundary_bytes[starts], np.inf)
    choice = np.argmin(bytes_crossed, axis=1)
    chosen.append(starts[rows, choice])
    best = np.concatenate([[np.inf], least])
    crossed = np.concatenate([[0.], bytes_crossed[rows, choice]])
  if not np.isfinite(best[n]):
    return np.inf, None
  stages, end = [], n
  for start in reversed(chosen):
    stages.append((int(start[end - 1]), end))
    end = stages[-1][0]
  return best[n], stages[::-1]


def _Cumulative(values):
  return np.concatenate([[0.], np.cumsum(np.asarray(values, np.float64))])


def _Speeds(speeds, num_stages):
  return np.ones(num_stages) if speeds is None else np.asarray(speeds, np.float64)
