"""The scenario of lingvo's gpipe_test, on really separate devices.

Sixteen convolutions of one channel with weights 0.1, mini-batches of 16. On
GPUs: python -m tests.gpipe_test --use_gpu
"""

import sys

import lingvo.compat as tf
from lingvo.core import layers
from lingvo.core import py_utils
from lingvo.core import tshape
import pytest

import lingvo_gpipe
from tests import toy_layers

_LAYERS = 16
_BATCH = 16
_MICRO_BATCHES = 8


def _ConvLayers(n=_LAYERS, cls=toy_layers.Conv):
  return [cls.Params().Set(name=f'layer_{i}') for i in range(n)]


def _Cells(num_splits):
  """Stages made by hand; the first one's output is fetched and passed along."""
  subs = _ConvLayers()
  each = _LAYERS // num_splits
  cells = []
  for k in range(num_splits):
    sub = subs[k * each:(k + 1) * each]
    if k == 0:
      sub.append(layers.FetchLayer.Params().Set(name='fetch'))
    cells.append(
        lingvo_gpipe.FeatureExtractionLayer.Params().Set(
            name=f'split_{k}', sub=sub, num_act_outputs=1,
            num_act_inputs=int(k > 0), act_fetch_layers=['fetch'] * (k == 0)))
  return cells


def _Pipeline(cells, **kwargs):
  return lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', num_micro_batches=_MICRO_BATCHES, cell_tpl=cells, **kwargs)


def _Check(devices, params, num_splits, expected_calls):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(num_splits):
    tf.random.set_seed(1245)
    inputs = tf.random.uniform([_BATCH, 8, 8, 1], seed=12345)
    net = params.Instantiate()
    outputs = net.FPropDefaultTheta(inputs)
    logits, fetched = outputs if isinstance(outputs, tuple) else (outputs, None)
    grads = tf.gradients(tf.reduce_mean(logits), tf.trainable_variables())
    fetches = {
        'norm': tf.sqrt(py_utils.SumSquared(grads)),
        'calls': net.GetAccumulatorValues().Flatten(),
    }
    if fetched is not None:
      fetches['fetched'] = fetched
  values = devices.Run(graph, num_splits, fetches)
  assert values['norm'] == pytest.approx(0.268087, rel=1e-5)
  assert values['calls'] == [expected_calls] * _LAYERS
  if fetched is not None:
    assert values['fetched'].shape == (_BATCH, 8, 8, 1)


def testOneSplit(devices):
  params = lingvo_gpipe.FeatureExtractionLayer.Params().Set(
      name='seq', sub=_ConvLayers())
  _Check(devices, params, 1, 1)


@pytest.mark.parametrize('num_splits', [2, 4])
def testSplitsWithFetchedActivation(devices, num_splits):
  _Check(devices, _Pipeline(_Cells(num_splits)), num_splits, _MICRO_BATCHES)


@pytest.mark.parametrize('num_splits', [2, 4])
def testAutomaticPartition(devices, num_splits):
  cells = lingvo_gpipe.PartitionSequentialLayers(
      _ConvLayers(), num_splits, tshape.Shape([_BATCH, 8, 8, 1]))
  assert [len(c.sub) for c in cells] == [_LAYERS // num_splits] * num_splits
  _Check(devices, _Pipeline(cells), num_splits, _MICRO_BATCHES)


def testMicroBatchSizeThatDoesNotFit(devices):
  with pytest.raises(ValueError, match='1 . 8 = 8, but the batch size is 16'):
    _Check(devices, _Pipeline(_Cells(2), micro_batch_size=1), 2, 0)


def testMicroBatchSizeThatFits(devices):
  _Check(
      devices, _Pipeline(_Cells(2), micro_batch_size=2), 2, _MICRO_BATCHES)


def testNestedMapInputs(devices):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(4):
    net = _Pipeline(
        _ConvLayers(4, toy_layers.MapConv), micro_batch_size=2,
        nested_map_fprop=True).Instantiate()
    outputs = net.FPropDefaultTheta(
        py_utils.NestedMap(
            vec=tf.random.uniform([_BATCH, 8, 8, 1]), paddings=None))
  assert outputs.paddings is None
  assert outputs.vec.shape.as_list() == [_BATCH, 8, 8, 1]
  assert devices.Run(graph, 4, outputs.vec).shape == (_BATCH, 8, 8, 1)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
