"""Networks against the literature, blocks against plain TensorFlow."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
from lingvo.core import tshape
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import partition
from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers import residual_block
from lingvo_gpipe.layers import resnet

_VARIANTS = residual_block.VARIANTS


def _Sequence(layers):
  return image_layers.Sequence('net', layers)


@pytest.mark.parametrize('depth, num_classes, expected', [
    (18, 1000, 11_689_512),
    pytest.param(34, 1000, 21_797_672, marks=pytest.mark.slow),
    (50, 1000, 25_557_032),
    pytest.param(101, 1000, 44_549_160, marks=pytest.mark.slow),
    pytest.param(152, 1000, 60_192_808, marks=pytest.mark.slow),
    (20, 10, 269_722),
    pytest.param(56, 10, 853_018, marks=pytest.mark.slow),
    pytest.param(110, 10, 1_727_962, marks=pytest.mark.slow),
])
def testNumberOfParameters(depth, num_classes, expected):
  # Of torchvision's models, and of Y. Idelbayev's CIFAR ones, which have the
  # paper's 0.27, 0.85 and 1.7 million.
  with tf.Graph().as_default():
    _Sequence(resnet.ResNetLayers(depth, num_classes)).Instantiate()
    variables = tf.trainable_variables()
    assert sum(v.shape.num_elements() for v in variables) == expected


@pytest.mark.parametrize('variant', _VARIANTS)
@pytest.mark.parametrize('depth, size, multiply_adds', [
    (18, 224, 1.814e9),
    (50, 224, 4.089e9),
    (101, 224, 7.801e9),
    (20, 32, 40.6e6),
])
def testFlops(variant, depth, size, multiply_adds):
  net = _Sequence(resnet.ResNetLayers(depth, 10, variant=variant))
  meta = net.cls.FPropMeta(net, tshape.Shape([4, size, size, 3]))
  # Normalisation and activations come on top.
  assert 2 * multiply_adds < meta.flops / 4 < 2.1 * multiply_adds
  assert meta.out_shapes[0].ToTensorShape() == [4, 10]


@pytest.mark.parametrize('variant', _VARIANTS)
@pytest.mark.parametrize('depth, shortcut, size', [
    (8, 'pad', 9), (8, 'pad', 8), (8, 'projection', 9), (18, 'projection', 64),
    pytest.param(50, 'projection', 33, marks=pytest.mark.slow)])
def testDeclaredShapesAreTheRealOnes(variant, depth, shortcut, size):
  layers = resnet.ResNetLayers(
      depth, 7, input_dim=2, variant=variant, shortcut=shortcut)
  with tf.Graph().as_default():
    shape = tshape.Shape([3, size, size, 2])
    x = tf.zeros([3, size, size, 2])
    for p in layers:
      shape = p.cls.FPropMeta(p, shape).out_shapes[0]
      x = p.Instantiate().FPropDefaultTheta(x)
      assert shape.ToTensorShape() == x.shape, p.name


def _Norm(x, weights):
  mean, variance = tf.nn.moments(x, [0, 1, 2])
  return tf.nn.batch_normalization(
      x, mean, variance, weights.beta, 1. + weights.gamma, 1e-5)


def _Conv(x, weights, stride=1):
  return tf.nn.conv2d(x, weights.w, stride, 'SAME')


def _Reference(p, theta, x):
  """What a block computes, written down once more."""
  bottleneck_strides = [1, p.stride, 1]
  strides = bottleneck_strides if p.bottleneck else [p.stride, 1]
  branch, h = theta.branch, x
  if p.variant == 'preactivation':
    h = tf.nn.relu(_Norm(x, theta.preactivation.bn))
    if p.activated_shortcut:
      x = h
  shortcut = x
  if 'shortcut' in theta and p.shortcut == 'pad':
    zeros = tf.zeros_like(x[:, ::p.stride, ::p.stride, :])
    shortcut = tf.concat([x[:, ::p.stride, ::p.stride, :], zeros], -1)
  elif 'shortcut' in theta and p.variant == 'preactivation':
    shortcut = _Conv(h, theta.shortcut.conv, p.stride)
  elif 'shortcut' in theta:
    shortcut = _Norm(
        _Conv(x, theta.shortcut.conv, p.stride), theta.shortcut.bn)
  if p.variant == 'preactivation':
    for i, stride in enumerate(strides):
      if i:
        h = tf.nn.relu(_Norm(h, branch[f'bn{i}']))
      h = _Conv(h, branch[f'conv{i}'], stride)
    return shortcut + h
  for i, stride in enumerate(strides):
    if i:
      h = tf.nn.relu(h)
    h = _Norm(_Conv(h, branch[f'conv{i}'], stride), branch[f'bn{i}'])
  return tf.nn.relu(shortcut + h)


def _Block(**kwargs):
  return residual_block.ResidualBlock.Params().Set(name='block', **kwargs)


@pytest.mark.parametrize('variant', _VARIANTS)
@pytest.mark.parametrize('kwargs', [
    dict(dim=8),
    dict(dim=8, stride=2),
    dict(dim=8, activated_shortcut=True),
    dict(dim=16, activated_shortcut=True),
    dict(dim=16),
    dict(dim=16, stride=2, shortcut='pad'),
    dict(dim=2, bottleneck=True),
    dict(dim=4, bottleneck=True, stride=2),
    dict(dim=4, bottleneck=True, stride=2, shortcut='pad'),
], ids=str)
def testBlockAgainstPlainTensorFlow(variant, kwargs):
  p = _Block(input_dim=8, variant=variant, **kwargs)
  graph = tf.Graph()
  with graph.as_default():
    tf.random.set_seed(1)
    x = tf.random.normal([4, 6, 5, 8], mean=.5)
    block = p.Instantiate()
    # Weights that tell scales and shifts apart, not the initial ones.
    theta = block.theta.Transform(
        lambda w: tf.random.normal(w.shape, stddev=.3, seed=2))
    actual, expected = block.FProp(theta, x), _Reference(p, theta, x)
    with tf.Session(graph=graph) as session:
      actual, expected = session.run([actual, expected])
  np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


def testTheFirstBlockActivatesBothPaths():
  layers = resnet.ResNetLayers(20, 10, variant='preactivation')
  assert [p.activated_shortcut for p in layers[1:-1]] == [True] + 8 * [False]


@pytest.mark.parametrize('zero', [False, True])
def testZeroInitResidual(zero):
  graph = tf.Graph()
  with graph.as_default():
    tf.random.set_seed(1)
    x = tf.random.normal([4, 6, 6, 8])
    block = _Block(input_dim=8, dim=8, zero_init_residual=zero).Instantiate()
    y = block.FPropDefaultTheta(x)
    init = tf.global_variables_initializer()
    with tf.Session(graph=graph) as session:
      session.run(init)
      x, y = session.run([x, y])
  assert np.allclose(y, np.maximum(x, 0.)) == zero


@pytest.mark.parametrize('variant', _VARIANTS)
def testWeightDecayTakesFiltersAndMatricesOnly(variant):
  with tf.Graph().as_default():
    _Sequence(resnet.ResNetLayers(8, 10, variant=variant)).Instantiate()
    left = {v.ref() for v in tf.get_collection(py_utils.SKIP_LP_REGULARIZATION)}
    variables = tf.trainable_variables()
    decayed = [v for v in variables if v.ref() not in left]
  assert {v.op.name.split('/')[-2] for v in decayed} == {'w'}
  others = {v.op.name.split('/')[-2] for v in variables} - {'w'}
  assert others == {'b', 'beta', 'gamma'}


@pytest.mark.parametrize('variant', _VARIANTS)
def testHalfPrecisionActivations(variant):
  layers = resnet.ResNetLayers(8, 10, variant=variant)
  with tf.Graph().as_default():
    net = _Sequence(layers).Set(fprop_dtype=tf.bfloat16).Instantiate()
    dtypes = {v.dtype.base_dtype for v in tf.trainable_variables()}
    assert dtypes == {tf.float32}
    images = tf.zeros([4, 8, 8, 3], tf.float32)
    assert net.FPropDefaultTheta(images).dtype == tf.bfloat16


def _LossAndGradients(devices, variant, k):
  layers = resnet.ResNetLayers(8, 10, input_dim=1, variant=variant)
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='net', layers=layers, input_shapes=[[16, 8, 8, 1]], num_stages=k,
        num_micro_batches=4).Instantiate()
    tf.random.set_seed(1)
    images = tf.random.normal([16, 8, 8, 1], seed=2)
    targets = tf.random.normal([16, 10], seed=3)
    variables = sorted(tf.trainable_variables(), key=lambda v: v.name)
    # The same weights for any K: by name.
    seeds = [py_utils.GenerateSeedFromName(v.name) for v in variables]
    assign = tf.group(*[
        tf.assign(v, tf.random.stateless_normal(v.shape, [0, s], stddev=.2))
        for v, s in zip(variables, seeds)])
    loss = tf.reduce_mean(targets * net.FPropDefaultTheta(images))
    gradients = tf.gradients(loss, variables)
    init = tf.global_variables_initializer()
  with devices.Session(graph, k) as session:
    session.run(init)
    session.run(assign)
    loss, gradients = session.run([loss, gradients])
  return loss, {v.name: g for v, g in zip(variables, gradients)}


@pytest.mark.parametrize('variant', [
    'preactivation', pytest.param('original', marks=pytest.mark.slow)])
def testStagesDontChangeLossAndGradients(devices, variant):
  expected_loss, expected = _LossAndGradients(devices, variant, 1)
  for k in (2, 5):
    loss, gradients = _LossAndGradients(devices, variant, k)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, value in gradients.items():
      scale = np.abs(expected[name]).max()
      np.testing.assert_allclose(
          value, expected[name], rtol=1e-5, atol=1e-5 * scale, err_msg=name)


@pytest.mark.parametrize('kwargs, words', [
    (dict(depth=51), ['51', '18, 20, 32, 34, 44, 50', 'ResNetConfig']),
    (dict(depth=50, variant='v3'), ["'v3'", "'original', 'preactivation'"]),
    (dict(depth=20, widths=(8, 16)), ['(8, 16)', '3 groups', '2 widths']),
    (dict(depth=20, shortcut='none'), ["'none'", "'projection', 'pad'"]),
    (dict(depth=20, widths=(8, 16, 4)), ['16 channels', '4', 'projection']),
])
def testErrorsSayWhatToDo(kwargs, words):
  with tf.Graph().as_default(), pytest.raises(ValueError) as e:
    _Sequence(resnet.ResNetLayers(num_classes=10, **kwargs)).Instantiate()
  for word in words:
    assert word in str(e.value)


def testAPipelineCutsBetweenBlocksOnly():
  # It takes sequences apart; to it, stem and head aren't sequences.
  layers = resnet.ResNetLayers(8, 10)
  assert [p.cls for p in partition.Flatten(layers)] == [p.cls for p in layers]


def testConfigOfOnesOwn():
  config = resnet.ResNetConfig((1, 2), (8, 16), bottleneck=True)
  names = [p.name for p in resnet.ResNetLayers(config, 10)]
  assert names == ['stem', 'block_0', 'block_1', 'block_2', 'head']


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
