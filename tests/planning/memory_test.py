"""The memory of a stage, against sums by hand."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from lingvo_gpipe.planning import memory
from tests.planning.layer_costs import Layer

_LAYERS = [
    Layer('a', param_bytes=100, input_bytes=1, kept_bytes=10, peak_bytes=15,
          product_bytes=4, output_bytes=2),
    Layer('b', param_bytes=200, input_bytes=2, kept_bytes=20, peak_bytes=50,
          product_bytes=5, output_bytes=3),
    Layer('c', param_bytes=0, input_bytes=3, kept_bytes=30, peak_bytes=31,
          product_bytes=0, output_bytes=7)
]


@pytest.mark.parametrize('mode,held,passing', [
    # The gradient passes b while a's 10 are there, or passes a.
    ('always', 1, 10 + 50), ('except_last', 1, 10 + 50),
    ('selective', 1 + 4 + 5, 10 + 50),
    # b needs 30 beyond what it keeps.
    ('never', 10 + 20, 30)])
def testAStage(mode, held, passing):
  stages = memory.StageMemory(_LAYERS, mode, 2., [8, 8], joined=8)
  assert stages.Of(0, 0, 2) == (300, 300, 600, 8 * held + passing)


def testTheLastStageHasTheOutputsAndTheirGradients():
  stages = memory.StageMemory(_LAYERS, 'always', 0., [8, 4], joined=8)
  assert stages.Of(1, 2, 3).activations == 4 * 3 + 31 + 2 * 8 * 7
  inside = memory.StageMemory(_LAYERS, 'always', 0., [3, 1], joined=0)
  assert inside.Of(1, 2, 3).activations == 3 + 31


@hypothesis.given(st.data())
def testWhatCutsAreLimitedBy(data):
  numbers = st.integers(0, 50)
  names = ('param_bytes', 'input_bytes', 'kept_bytes', 'peak_bytes', 'product_bytes')
  costs = [
      Layer(**{name: data.draw(numbers) for name in names})
      for _ in range(data.draw(st.integers(1, 9)))
  ]
  mode = data.draw(st.sampled_from(['always', 'never', 'selective']))
  stages = memory.StageMemory(costs, mode, 1., [3, 5], joined=2)
  limited = stages.Limited([10., 20.])
  n = len(costs)
  starts, ends = np.array([(i, j) for i in range(n) for j in range(i + 1, n + 1)]).T
  for k in (0, 1):
    needs = limited.fixed(starts, ends) + limited.in_flight[k] * limited.held(starts, ends)
    assert needs.tolist() == [sum(stages.Of(k, i, j)) for i, j in zip(starts, ends)]
