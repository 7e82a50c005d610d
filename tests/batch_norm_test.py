"""Batch normalisation in a pipeline, against numpy."""

import sys

import lingvo.compat as tf
from lingvo.core import bn_layers
from lingvo.core import layers
from lingvo.core import py_utils
import numpy as np
import pytest

import lingvo_gpipe
from tests import toy_layers

_BATCH, _DIM, _DECAY, _STEPS = 8, 3, 0.9, 3


class _Inner(toy_layers.base_layer.BaseLayer):
  """A layer that makes a BatchNormLayer of its own, deep inside."""

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('norm', _Norm(bn_layers.BatchNormLayer))

  def FProp(self, theta, x, *paddings):
    y = self.norm.FProp(theta.norm, x, *paddings)
    return (y,) + paddings if paddings else y


def _Norm(cls):
  return cls.Params().Set(name='norm', dim=_DIM, decay=_DECAY)


def _Net(norm, k, m):
  dense = [
      toy_layers.Dense.Params().Set(name=f'dense_{i}', dim=_DIM)
      for i in range(2)
  ]
  return lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', layers=[norm] + dense, num_stages=k, num_micro_batches=m)


def _Data(seed=1):
  rng = np.random.RandomState(seed)
  # A mean far from 0 beside a small variance: sums of squares would cancel.
  return rng.normal(100., [.1, 1., 10.], (_STEPS, _BATCH, 5, 5, _DIM))


def _MovingAverages(devices, norm, k, m, data, paddings=None, **kwargs):
  """Trains for a few steps; returns the moving mean and variance."""
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    net = _Net(norm, k, m).Set(**kwargs).Instantiate()
    step = py_utils.GetOrCreateGlobalStepVar()
    x = tf.gather(tf.constant(data, tf.float32), step)
    args = (x,)
    if paddings is not None:
      args += (tf.constant(paddings, tf.float32),)
    x = net.FPropDefaultTheta(*args)
    x = x[0] if isinstance(x, tuple) else x
    grads = tf.gradients(tf.reduce_sum(x), tf.trainable_variables())
    averages = [
        [v for v in tf.global_variables() if v.name.endswith(name)][0]
        for name in ('moving_mean/var:0', 'moving_variance/var:0')
    ]
    assert not tf.get_collection(py_utils.BATCH_NORM_UPDATES)
    with tf.control_dependencies([g for g in grads if g is not None]):
      with tf.control_dependencies([net.PostTrainingStepUpdate()]):
        train = tf.group(step.assign_add(1))
    with devices.Session(graph, k) as session:
      session.run(tf.global_variables_initializer())
      for _ in range(_STEPS):
        session.run(train)
      return session.run(averages)


def _Expected(data, weights=None):
  """By numpy, from whole mini-batches."""
  mean, variance = np.zeros(_DIM), np.ones(_DIM)
  for x in data:
    x = x.reshape(-1, _DIM)
    w = np.ones(len(x)) if weights is None else weights.reshape(-1)
    batch_mean = np.average(x, axis=0, weights=w)
    batch_variance = np.average((x - batch_mean)**2, axis=0, weights=w)
    mean += (1 - _DECAY) * (batch_mean - mean)
    variance += (1 - _DECAY) * (batch_variance - variance)
  return mean, variance


@pytest.mark.parametrize('k,m', [(1, 1), (1, 4), (2, 1), (2, 4), (3, 8)])
@pytest.mark.parametrize('norm', ['BatchNormLayer', 'BatchNormLayerNoPadding',
                                  'inside'])
def testMovingAveragesOfTheWholeMiniBatch(devices, norm, k, m):
  data = _Data()
  if norm == 'inside':
    layer = _Inner.Params().Set(name='inner')
  else:
    layer = _Norm(getattr(bn_layers, norm))
  if norm == 'BatchNormLayerNoPadding':
    data = data - 100.  # Lingvo's sums of squares are exact only near 0.
  mean, variance = _MovingAverages(devices, layer, k, m, data)
  expected = _Expected(data)
  np.testing.assert_allclose(mean, expected[0], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(variance, expected[1], rtol=1e-4)


@pytest.mark.parametrize('k,m', [(1, 1), (2, 4)])
def testPaddingsDoNotCount(devices, k, m):
  data = _Data()
  paddings = np.random.RandomState(2).randint(0, 2, (_BATCH, 5, 5, 1))
  paddings[:2] = 1  # A micro-batch without any data.
  mean, variance = _MovingAverages(
      devices, _Inner.Params().Set(name='inner'), k, m, data, paddings)
  expected = _Expected(data, 1 - paddings)
  np.testing.assert_allclose(mean, expected[0], rtol=1e-5)
  np.testing.assert_allclose(variance, expected[1], rtol=1e-4)


@pytest.mark.parametrize('norm', ['BatchNormLayer', 'BatchNormLayerNoPadding'])
def testMicroBatchesOfDifferentSizes(devices, norm):
  data = _Data() - 100.
  layer = _Norm(getattr(bn_layers, norm))
  mean, variance = _MovingAverages(devices, layer, 2, 3, data, pad_batch=True)
  expected = _Expected(data)
  np.testing.assert_allclose(mean, expected[0], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(variance, expected[1], rtol=1e-4)


def testNormalisesByTheMicroBatch(devices):
  data = _Data()[0]
  outputs = {}
  for k, m in ((1, 4), (2, 4)):
    graph = tf.Graph()
    with graph.as_default(), devices.Cluster(k):
      net = lingvo_gpipe.PipeliningLayer.Params().Set(
          name='pipeline', num_stages=k, num_micro_batches=m,
          layers=[_Norm(bn_layers.BatchNormLayer),
                  layers.IdentityLayer.Params().Set(name='id')]).Instantiate()
      y = net.FPropDefaultTheta(tf.constant(data, tf.float32))
    outputs[k] = devices.Run(graph, k, y)
  x = data.reshape(4, -1, _DIM)
  expected = (x - x.mean(1, keepdims=True)) / np.sqrt(
      x.var(1, keepdims=True) + 1e-3)
  for y in outputs.values():
    np.testing.assert_allclose(
        y.reshape(expected.shape), expected, rtol=1e-3, atol=1e-3)


def testEvaluationUsesTheMovingAverages(devices):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(2, do_eval=True):
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='pipeline', num_stages=2, num_micro_batches=4,
        layers=[_Norm(bn_layers.BatchNormLayer),
                layers.IdentityLayer.Params().Set(name='id')]).Instantiate()
    x = tf.ones([_BATCH, _DIM])
    y = net.FPropDefaultTheta(x)
  # Moving mean 0 and variance 1, as initialised.
  np.testing.assert_allclose(
      devices.Run(graph, 2, y), np.ones((_BATCH, _DIM)) / np.sqrt(1.001),
      rtol=1e-6)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
