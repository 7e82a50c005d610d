"""Small layers to make pipelines of."""

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import layers
from lingvo.core import py_utils


class Calls(base_layer.Accumulator):
  """Counts how often a layer has run."""

  def DefaultValue(self):
    return tf.zeros([], tf.float32)


class Conv(base_layer.BaseLayer):
  """A 3x3 convolution of one channel, ReLU; counts its calls."""

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild(
        'conv',
        layers.Conv2DLayerNoPadding.Params().Set(
            filter_shape=(3, 3, 1, 1), filter_stride=(1, 1),
            params_init=py_utils.WeightInit.Constant(0.1)))
    self.RegisterAccumulator('calls', Calls())

  def FProp(self, theta, inputs):
    with tf.name_scope(self.params.name):
      calls = self.accumulators.calls
      calls.SetValue(calls.GetValue() + 1.)
      return tf.nn.relu(self.conv.FProp(theta.conv, inputs))

  @classmethod
  def FPropMeta(cls, p, inputs):
    return py_utils.NestedMap(flops=1, out_shapes=(inputs,))


class MapConv(Conv):
  """Conv whose input and output is a NestedMap(vec, paddings)."""

  def FProp(self, theta, inputs):
    return py_utils.NestedMap(
        vec=super().FProp(theta, inputs.vec), paddings=inputs.paddings)


class Dense(base_layer.BaseLayer):
  """softsign(x w + b), with dropout where keep_prob < 1; passes further args on."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('dim', 4, 'Of inputs and outputs.')
    p.Define('keep_prob', 1.0, 'Of the dropout.')
    p.Define('dropout', layers.DeterministicDropoutLayer.Params(), '')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    if p.keep_prob < 1:
      self.CreateChild('drop', p.dropout.Copy().Set(keep_prob=p.keep_prob))

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    p = self.params
    self.CreateVariable(
        'w', py_utils.WeightParams([p.dim, p.dim],
                                   py_utils.WeightInit.Gaussian(0.5, seed=7)))
    self.CreateVariable(
        'b', py_utils.WeightParams([p.dim],
                                   py_utils.WeightInit.Gaussian(0.5, seed=8)))

  def FProp(self, theta, x, *others):
    y = tf.nn.softsign(tf.matmul(x, theta.w) + theta.b)
    if self.params.keep_prob < 1:
      y = self.drop.FProp(theta.drop, y)
    return (y,) + others if others else y

  @classmethod
  def FPropMeta(cls, p, x, *others):
    return py_utils.NestedMap(flops=2 * p.dim * p.dim, out_shapes=(x,) + others)
