"""Cuts of a sequence of costs into contiguous stages, by several rules.

Layers are numbered from 0, and a stage is a pair (start, end). Stage k takes
the time cost / speeds[k].
"""

import numpy as np

from lingvo_gpipe import best_cut


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
    memory: A best_cut.Memory, or None.

  Returns:
    A list of num_stages (start, end) pairs; none is empty.

  Raises:
    best_cut.MemoryLimitError: no cut fits into the memory.
  """
  problem = best_cut.Problem(
      costs, num_stages, _Speeds(speeds, num_stages), boundary_bytes, memory)
  return problem.Squares(problem.Largest())


def LeastVariance(costs, num_stages, speeds=None, boundary_bytes=None,
                  memory=None):
  """The cut with the smallest variance of costs, the paper's rule (section 2.2).

  Its largest stage may be larger than need be. Args, Returns and Raises: as
  MinMax's.
  """
  problem = best_cut.Problem(
      costs, num_stages, _Speeds(speeds, num_stages), boundary_bytes, memory)
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
  total = np.cumsum(np.asarray(costs, np.float64))
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


def _Speeds(speeds, num_stages):
  return np.ones(num_stages) if speeds is None else np.asarray(speeds, np.float64)
