"""Whatever a cell's FProp takes and gives comes out of a pipeline as out of the layers in sequence."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import py_utils
from lingvo.core import tshape
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import stacked_recurrent
from tests import toy_layers

_BATCH, _DIM = 8, 4
NestedMap = py_utils.NestedMap


class _Pair(toy_layers.Dense):
  """Dense of the second of a pair; whatever else there is passes."""
  FPropMeta = base_layer.BaseLayer.FPropMeta

  def FProp(self, theta, nmap):
    first, second = nmap.pair
    after = nmap.copy()
    after.pair = [first, super().FProp(theta, second)]
    return after


def _Pipeline(num_stages, num_micro_batches, cls=_Pair, **kwargs):
  return lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', num_stages=num_stages,
      num_micro_batches=num_micro_batches, nested_map_fprop=True,
      layers=[cls.Params().Set(name=f'l{i}', dim=_DIM) for i in range(3)],
      **kwargs)


def _Evaluate(devices, k, params, nmap, loss_inside=False):
  """(outputs or loss, gradients of the inputs and weights); None for no gradient."""
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    py_utils.GetOrCreateGlobalStepVar()
    net = params.Instantiate()
    nmap = nmap.Transform(lambda x: x if x is None else tf.constant(x))
    if loss_inside:
      loss = net.FPropLoss(
          net.theta,
          lambda theta, outputs, targets: {
              'loss': (tf.reduce_mean(tf.square(outputs.pair[1])), targets.num[1][0] * 0. + 1.)},
          NestedMap(), NestedMap(num=[None, tf.ones([_BATCH])]), nmap)['loss'][0]
      outputs = loss
    else:
      outputs = net.FPropDefaultTheta(nmap)
      floats = [x for x in outputs.Flatten() if x is not None and x.dtype.is_floating]
      loss = tf.add_n([tf.reduce_mean(tf.square(x)) for x in floats])
    xs = [x for x in nmap.Flatten() if x is not None and x.dtype.is_floating]
    grads = tf.gradients(loss, xs + tf.trainable_variables())
  present = [x for x in tf.nest.flatten([outputs, grads]) if x is not None]
  values = iter(devices.Run(graph, k, present))
  return [None if x is None else next(values) for x in tf.nest.flatten([outputs, grads])]


def _AssertSame(ours, expected):
  assert [x is None for x in ours] == [x is None for x in expected]
  for a, b in zip(ours, expected):
    if a is not None:
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


_X = np.random.RandomState(1).randn(_BATCH, _DIM).astype(np.float32)
_INPUTS = {
    'none_first': NestedMap(pair=[None, _X]),
    'integer_first': NestedMap(pair=[np.arange(_BATCH), _X]),
    # Not the padding of a recurrent layer, whose time steps are left out.
    'padding': NestedMap(
        pair=[None, _X],
        padding=np.repeat(np.float32([[1], [0], [1], [1]]), 2, 0)),
}


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
@pytest.mark.parametrize('inputs', _INPUTS)
def testPlacesInAListKeepTheirMeaning(devices, inputs, recompute):
  expected = _Evaluate(devices, 1, _Pipeline(1, 1), _INPUTS[inputs])
  ours = _Evaluate(devices, 2, _Pipeline(2, 4, recompute=recompute), _INPUTS[inputs])
  _AssertSame(ours, expected)


@pytest.mark.parametrize('recompute', ['never', 'always'])
def testPlacesInAListWithTheLossInside(devices, recompute):
  inputs = _INPUTS['integer_first']
  expected = _Evaluate(devices, 1, _Pipeline(1, 1), inputs, loss_inside=True)
  ours = _Evaluate(
      devices, 2, _Pipeline(2, 4, schedule='1f1b', recompute=recompute), inputs, loss_inside=True)
  _AssertSame(ours, expected)


def testAnUnevenBatchWithAPadding(devices):
  inputs = _INPUTS['padding'].Transform(lambda x: x if x is None else x[:7])
  expected = _Evaluate(devices, 1, _Pipeline(1, 1), inputs)
  _AssertSame(_Evaluate(devices, 2, _Pipeline(2, 4, pad_batch=True), inputs), expected)


class _Many(base_layer.BaseLayer):
  """Gives more outputs than there are digits, each of another shape."""

  def FProp(self, theta, x):
    return tuple(x[:, :i + 1] for i in range(12))

  @classmethod
  def FPropMeta(cls, p, x):
    return NestedMap(flops=1, out_shapes=tuple(tshape.Shape([x[0], i + 1]) for i in range(12)))


def testTwelveOutputsAreInOrder(devices):
  x = np.random.RandomState(0).randn(4, 16).astype(np.float32)
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(1):
    py_utils.GetOrCreateGlobalStepVar()
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='p', num_micro_batches=2, cell_tpl=[_Many.Params().Set(name='many')]).Instantiate()
    outputs = net.FPropDefaultTheta(tf.constant(x))
  for i, y in enumerate(devices.Run(graph, 1, outputs)):
    np.testing.assert_array_equal(y, x[:, :i + 1])


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
