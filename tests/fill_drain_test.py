"""The order of work on each stage, and what is traced for it."""

import sys
import threading

import lingvo.compat as tf
import pytest

from lingvo_gpipe import fill_drain
from tests import recorded_cells

_K, _M = 3, 5


def _Build(devices, recompute, m=_M):
  recorder = recorded_cells.Recorder(_K)
  graph = tf.Graph()
  with graph.as_default():
    fetches = recorded_cells.Stack(devices, recorder, m, recompute)
  return graph, recorder, fetches


def _Expected(recompute):
  """What each stage does, in order."""
  forward = [('F', t) for t in range(_M)]
  again = {
      'never': [],
      'except_last': list(range(_M - 1)),
  }.get(recompute, list(range(_M)))
  backward = []
  for t in reversed(range(_M)):
    backward += [('F', t)] * (t in again) + [('B', t)]
  return forward + backward


@pytest.mark.parametrize('recompute', fill_drain.RECOMPUTE_MODES)
def testOneMicroBatchAtATimeInOrder(devices, recompute):
  graph, recorder, fetches = _Build(devices, recompute)
  loss, grads = devices.Run(graph, _K, fetches)
  assert recorder.work == [_Expected(recompute)] * _K
  assert not recorder.overlaps
  assert loss == 2 * _M and grads == [8 * loss, 4 * loss, 2 * loss]


@pytest.mark.parametrize('recompute', ['always', 'selective'])
def testRecomputesBeforeTheGradientArrives(devices, recompute):
  graph, recorder, fetches = _Build(devices, recompute)
  began = threading.Event()
  waited = []
  # The second stage's gradient waits for the first stage's recomputation, which
  # would never begin if that waited for the gradient.
  calls = []

  def First():
    calls.append(1)
    if len(calls) == 2:
      began.set()

  recorder.before[0, 'F', _M - 1] = First
  recorder.before[1, 'B', _M - 1] = lambda: waited.append(began.wait(30))
  devices.Run(graph, _K, fetches)
  assert waited == [True]


@pytest.mark.parametrize('recompute,traces', [
    # The shapes, the forward loop, the backward loop.
    ('always', 3),
    ('selective', 3),
    # And the last micro-batch by itself.
    ('except_last', 4),
    ('never', 2),
])
def testTracesAndGraphDoNotGrowWithMicroBatches(devices, recompute, traces):
  sizes = []
  for m in (2, 16):
    graph, recorder, _ = _Build(devices, recompute, m)
    assert recorder.traces == [traces] * _K
    sizes.append(len(graph.get_operations()))
  assert sizes[0] == sizes[1]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
