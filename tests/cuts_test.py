"""Cuts against brute force."""

import itertools
import sys
import time

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from lingvo_gpipe import best_cut
from lingvo_gpipe import cuts


def _AllCuts(n, k):
  for inner in itertools.combinations(range(1, n), k - 1):
    yield list(zip((0,) + inner, inner + (n,)))


@st.composite
def _Problems(draw):
  """Costs, stages, and perhaps speeds, boundary bytes and limits of memory."""
  n = draw(st.integers(1, 8))
  numbers = st.integers(0, 20)
  lists = lambda size, of: st.lists(of, min_size=size, max_size=size)
  k = draw(st.integers(1, n))
  speeds = draw(st.none() | lists(k, st.sampled_from([1, 2, 4])))
  layer_bytes = draw(lists(n, numbers))
  boundary_bytes = draw(lists(n, numbers))
  limits = draw(st.none() | lists(k, st.integers(1, 60)))
  return draw(lists(n, numbers)), k, speeds, layer_bytes, boundary_bytes, limits


def _Score(problem, stages):
  """(largest time, sum of squares, bytes at the boundaries)."""
  costs, k, speeds, _, boundary_bytes, _ = problem
  times = [sum(costs[a:b]) / s for (a, b), s in zip(stages, speeds or [1] * k)]
  return (max(times), sum(t * t for t in times),
          sum(boundary_bytes[a] for a, _ in stages[1:]))


def _Needs(problem, stages):
  _, _, _, layer_bytes, boundary_bytes, _ = problem
  return [sum(layer_bytes[a:b]) + boundary_bytes[a] for a, b in stages]


def _Memory(layer_bytes, boundary_bytes, limits):
  """Stages hold what they need for their layers and, once, their input."""
  total = np.concatenate([[0], np.cumsum(layer_bytes)])
  boundary = np.append(boundary_bytes, 0)
  return best_cut.Memory(
      lambda starts, ends: total[ends] - total[starts],
      lambda starts, ends: boundary[starts], [1] * len(limits), limits)


def _Cut(rule, problem):
  costs, k, speeds, layer_bytes, boundary_bytes, limits = problem
  memory = limits and _Memory(layer_bytes, boundary_bytes, limits)
  return rule(costs, k, speeds, boundary_bytes, memory)


def _Fitting(problem):
  limits = problem[-1]
  return [
      stages for stages in _AllCuts(len(problem[0]), problem[1])
      if not limits or all(n <= l for n, l in zip(_Needs(problem, stages), limits))
  ]


@hypothesis.given(_Problems())
def testMinMaxIsTheBestOfAllCuts(problem):
  fitting = _Fitting(problem)
  if fitting:
    stages = _Cut(cuts.MinMax, problem)
    assert stages in fitting
    assert _Score(problem, stages) == min(_Score(problem, s) for s in fitting)
    return
  with pytest.raises(best_cut.MemoryLimitError, match='smallest limit') as caught:
    _Cut(cuts.MinMax, problem)
  limits = problem[-1]
  scale = min(
      max(n / l for n, l in zip(_Needs(problem, s), limits))
      for s in _AllCuts(len(problem[0]), problem[1]))
  np.testing.assert_allclose(caught.value.needed, [scale * l for l in limits])


@hypothesis.given(_Problems())
def testLeastVarianceIsTheBestOfAllCuts(problem):
  fitting = _Fitting(problem)
  if fitting:
    stages = _Cut(cuts.LeastVariance, problem)
    assert stages in fitting
    assert _Score(problem, stages)[1:] == min(
        _Score(problem, s)[1:] for s in fitting)


def testTheLeastVarianceMayHaveALargerLargest():
  costs = [1, 5, 2, 3]
  sums = lambda stages: [sum(costs[a:b]) for a, b in stages]
  assert sums(cuts.MinMax(costs, 3)) == [1, 5, 5]
  assert sums(cuts.LeastVariance(costs, 3)) == [6, 2, 3]


def testAThousandLayersInUnderASecond():
  random = np.random.RandomState(0)
  costs, sizes = random.rand(1000), random.rand(1000)
  memory = _Memory(sizes, 0.1 * sizes, [10.] * 64)
  start = time.process_time()
  stages = cuts.MinMax(costs, 64, memory=memory)
  assert time.process_time() - start < 1
  assert len(stages) == 64
  assert max(sizes[a:b].sum() + 0.1 * sizes[a] for a, b in stages) <= 10


def testFewCostsAmongManyZeros():
  costs = [0.] * 300 + [1.] + [0.] * 300 + [1.]
  stages = cuts.MinMax(costs, 2)
  assert [sum(costs[a:b]) for a, b in stages] == [1, 1]


def testAFasterDeviceGetsMore():
  assert cuts.MinMax([1] * 9, 2, speeds=[1, 2]) == [(0, 3), (3, 9)]


def testHistogramIsLingvos():
  # 16 equal layers: 7 and 9, and 3, 4, 4, 5, as lingvo.core.gpipe cuts them.
  lengths = lambda k: [b - a for a, b in cuts.Histogram([1] * 16, k)]
  assert (lengths(2), lengths(4)) == ([7, 9], [3, 4, 4, 5])
  with pytest.raises(ValueError, match='leaves stages without layers: 0, 1 of 3'):
    cuts.Histogram([10, 1, 1], 3)


@pytest.mark.parametrize('boundaries,match', [
    ([2], r'makes 2 stages .* Set num_stages=2, or list 2 layers'),
    ([2, 2], 'list numbers from 1 to 3'),
    ([0, 2], 'without layers'),
    ([2, 4], 'without layers'),
    (['a', 'b'], 'must list numbers of layers'),
])
def testBoundariesThatCannotBe(boundaries, match):
  with pytest.raises(ValueError, match=match):
    cuts.Given(boundaries, 4, 3)


def testImbalance():
  assert cuts.Imbalance([1, 1]) == 0
  assert cuts.Imbalance([1, 3]) == pytest.approx(0.5)
  assert cuts.Imbalance([1, 2], speeds=[1, 2]) == 0
  assert cuts.Imbalance([0, 0]) == 0


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
