"""Image layers against the Lingvo layers that they stand for."""

import sys

import lingvo.compat as tf
from lingvo.core import bn_layers
from lingvo.core import cluster_factory
from lingvo.core import py_utils
import numpy as np
import pytest

from lingvo_gpipe.layers import image_layers

_EPSILON = 1e-3


def _Step(cls, images, do_eval=False, **kwargs):
  """A step of a BatchNorm: (output, gradients, moving averages after it, types of operators)."""
  with tf.Graph().as_default() as graph, cluster_factory.SetEval(do_eval):
    py_utils.GetOrCreateGlobalStepVar()
    layer = cls.Params().Set(
        **dict(dict(name='bn', dim=3, decay=0.5, epsilon=_EPSILON), **kwargs)).Instantiate()
    dtype = layer.params.dtype
    x = tf.constant(images, dtype)
    y = layer.FPropDefaultTheta(x)
    loss = tf.reduce_sum(y * tf.square(x) * tf.range(1, 4, dtype=dtype))
    gradients = tf.gradients(loss, [x, layer.vars.beta, layer.vars.gamma])
    with tf.control_dependencies(gradients):
      update = layer.PostTrainingStepUpdate()
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      found = session.run([y, gradients])
      session.run(update)
      moving = session.run([layer.vars.moving_mean, layer.vars.moving_variance])
    return found, moving, {op.type for op in graph.get_operations()}


def _Images(*shape):
  return np.random.RandomState(1).normal(1., 2., shape)


@pytest.mark.parametrize('shape', [(5, 4, 4, 3), (1, 1, 1, 3), (2, 1, 1, 3)])
@pytest.mark.parametrize('kwargs,fused', [
    ({}, True),
    (dict(do_eval=True), False),
    (dict(dtype=tf.float64), False),
    (dict(epsilon=1e-6), False),
])
def testBatchNormIsLingvos(shape, kwargs, fused):
  images = _Images(*shape)
  ours = _Step(image_layers.BatchNorm, images, **kwargs)
  theirs = _Step(bn_layers.BatchNormLayerNoPadding, images, **kwargs)
  # Lingvo takes the variance from the sum of squares, which cancels.
  for a, b in zip(tf.nest.flatten(ours[:2]), tf.nest.flatten(theirs[:2])):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
  assert ('FusedBatchNormV3' in ours[2]) == fused
  assert not any(t.startswith('FusedBatchNorm') for t in theirs[2])


def testBatchNormOfHalfPrecision():
  images = _Images(5, 4, 4, 3).astype(np.float16)
  with tf.Graph().as_default():
    layer = image_layers.BatchNorm.Params().Set(name='bn', dim=3).Instantiate()
    y = layer.FPropDefaultTheta(tf.constant(images))
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      y = session.run(y)
  assert y.dtype == np.float16
  np.testing.assert_allclose(
      y, (images - images.mean((0, 1, 2))) / images.std((0, 1, 2)), atol=1e-2)


def testBatchNormInAFunction():
  images = _Images(5, 4, 4, 3).astype(np.float32)
  with tf.Graph().as_default():
    layer = image_layers.BatchNorm.Params().Set(name='bn', dim=3).Instantiate()

    @tf.Defun(*[tf.float32] * 5, noinline=True)
    def Function(x, *theta):
      x.set_shape(images.shape)
      return tf.nn.relu(layer.FProp(layer.theta.Pack(theta), x))

    y = Function(images, *[tf.convert_to_tensor(w) for w in layer.theta.Flatten()])
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      y = session.run(y)
  expected = (images - images.mean((0, 1, 2))) / images.std((0, 1, 2))
  np.testing.assert_allclose(y, np.maximum(expected, 0.), rtol=1e-4, atol=1e-4)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
