"""1F1B: the order of work on each stage, and how much is under way."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import pytest

from lingvo_gpipe import loss as loss_lib
from lingvo_gpipe import slices
from lingvo_gpipe import stacked_loss
from tests import recorded_cells

_K, _M = 3, 8


def _Build(devices, recompute, in_flight=_K + 1, m=_M):
  recorder = recorded_cells.Recorder(_K)
  graph = tf.Graph()
  with graph.as_default():
    ws = [tf.constant(1.) for _ in range(_K)]
    loss = loss_lib.Loss(
        lambda theta, outputs, targets: {'loss': (tf.reduce_sum(outputs.x), 1.)},
        py_utils.NestedMap(), {'loss': 1.})
    metrics = stacked_loss.StackedLoss(
        devices.Names(_K), recorder.Cells(),
        [py_utils.NestedMap(w=w) for w in ws],
        py_utils.NestedMap(x=tf.ones([m, 2]), id=tf.range(m, dtype=tf.int64)),
        slices.Stacked(m), py_utils.NestedMap(y=tf.zeros([m])), loss,
        [None] * _K, recompute, in_flight, ['a', 'b', 'c'])
    value, _ = metrics['loss']
    fetches = value, tf.gradients(value, ws)
  return graph, recorder, fetches


@pytest.mark.parametrize('recompute,in_flight', [
    ('never', _K + 1), ('never', 2), ('always', _K + 1), ('selective', 2)])
def testOrderAndMicroBatchesUnderWay(devices, recompute, in_flight):
  graph, recorder, fetches = _Build(devices, recompute, in_flight)
  loss, grads = devices.Run(graph, _K, fetches)
  assert loss == 2 and grads == [8 * loss, 4 * loss, 2 * loss]
  assert not recorder.overlaps or recompute != 'never'
  for k, work in enumerate(recorder.work):
    again = recompute != 'never' and k < _K - 1
    for t in range(_M):
      assert work.count(('F', t)) == 1 + again
      assert work.index(('F', t)) < work.index(('B', t))
    firsts = sorted(range(_M), key=lambda t, w=work: w.index(('F', t)))
    assert firsts == list(range(_M))
    assert [t for kind, t in work if kind == 'B'] == list(range(_M))
    begun = set()
    for kind, t in work:
      begun.add(t)
      if kind == 'B':
        begun.remove(t)
      assert len(begun) <= in_flight


@pytest.mark.parametrize('recompute,traces', [
    ('never', [2, 2, 2]), ('always', [3, 3, 2]), ('selective', [3, 3, 2])])
def testTracesAndGraphDoNotGrowWithMicroBatches(devices, recompute, traces):
  sizes = []
  for m in (2, 16):
    graph, recorder, _ = _Build(devices, recompute, m=m)
    assert recorder.traces == traces
    sizes.append(len(graph.get_operations()))
  assert sizes[0] == sizes[1]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
