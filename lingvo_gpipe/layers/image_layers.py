"""The small layers that image networks are made of, each with its cost.

Images are [batch, height, width, channels].
"""

import math

import lingvo.compat as tf
from lingvo.core import activations
from lingvo.core import base_layer
from lingvo.core import bn_layers
from lingvo.core import builder_layers
from lingvo.core import layers
from lingvo.core import py_utils
from lingvo.core import tshape

from lingvo_gpipe import lingvo_compat


# TensorFlow's fused operator takes no less (cuDNN's bound).
LEAST_EPSILON = 1.001e-5


class BatchNorm(bn_layers.BatchNormLayerNoPadding):
  """Batch normalisation that works under micro-batches, with an initial scale.

  Each micro-batch is normalised by its own mean and variance; the moving ones
  are updated once a mini-batch, from all of its micro-batches.

  In training it is one operator where Lingvo's layer has some thirty, and keeps
  nothing but its input for the gradient.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('initial_scale', 1.0, 'What the scale starts from.')
    p.epsilon = LEAST_EPSILON
    return p

  def FProp(self, theta, inputs):
    """Normalises; [batch, height, width, dim] in and out."""
    if self.do_eval or not self._CanFuse(inputs):
      return super().FProp(theta, inputs)
    p = self.params
    with tf.name_scope(p.name):
      outputs, mean, variance = tf.compat.v1.nn.fused_batch_norm(
          tf.cast(inputs, p.dtype), 1.0 + theta.gamma, theta.beta,
          epsilon=p.epsilon)
      if not self.accumulators.counts.is_disabled:
        self._Accumulate(_NumVectors(inputs), mean, variance)
      return tf.cast(outputs, inputs.dtype)

  def _CanFuse(self, inputs):
    """Whether TensorFlow's operator does what is asked for.

    In a function TensorFlow joins it to the ReLU that follows, and then runs a
    kernel that gives nothing: the pass that puts oneDNN's in its place doesn't
    look into functions (TensorFlow 2.13).
    """
    p = self.params
    return (
        p.dtype == tf.float32 and inputs.shape.rank == 4 and
        p.epsilon >= LEAST_EPSILON and
        not lingvo_compat.IsCalled(tf.get_default_graph()) and
        not py_utils.testonly_skip_norm_layers() and not py_utils.use_tpu())

  def _Accumulate(self, count, mean, variance):
    """Adds a micro-batch's moments, as sums, to those before.

    Args:
      count: How many vectors were normalised, a float or float32 scalar.
      mean: Their mean.
      variance: The estimate of their variance that has no bias: that of theirs
        by count / (count - 1), where count is more than 1.
    """
    acc = self.accumulators
    acc.counts.Update(count)
    acc.mean_ss.Update(mean * count)
    acc.variance_ss.Update(variance * (count - 1.0) + tf.square(mean) * count)

  def CreateVariable(self, name, var_params, *args, **kwargs):
    if name == 'gamma':  # Lingvo multiplies by 1 + gamma.
      init = py_utils.WeightInit.Constant(self.params.initial_scale - 1.0)
      var_params = var_params.Copy().Set(init=init)
    super().CreateVariable(name, var_params, *args, **kwargs)


def _NumVectors(images):
  """The number of pixels in images, a float where the shape is known."""
  if images.shape.is_fully_defined():
    return float(images.shape[:-1].num_elements())
  return tf.cast(tf.size(images[..., 0]), tf.float32)


class Projection(layers.ProjectionLayer):
  """A linear layer with a bias, which weight decay leaves alone."""

  @classmethod
  def Params(cls):
    return super().Params().Set(
        has_bias=True,
        batch_norm=False,
        activation='NONE',
        params_init=py_utils.WeightInit.GaussianSqrtFanIn(1.0))

  def CreateVariable(self, name, var_params, *args, **kwargs):
    if name == 'b':
      var_params = var_params.Copy().Set(
          collections=[*var_params.collections, py_utils.SKIP_LP_REGULARIZATION])
    super().CreateVariable(name, var_params, *args, **kwargs)


class MaxPool(layers.PoolingLayer):
  """Max pooling."""

  @classmethod
  def FPropMeta(cls, p, inputs):
    out = tshape.Shape(cls.OutputShape(p, list(inputs)))
    return py_utils.NestedMap(
        flops=out.num_elements() * math.prod(p.window_shape), out_shapes=(out,))


class GlobalAveragePool(base_layer.BaseLayer):
  """The mean of each channel: [batch, height, width, c] -> [batch, c]."""

  def FProp(self, theta, inputs):
    return tf.reduce_mean(inputs, axis=[1, 2])

  @classmethod
  def FPropMeta(cls, p, inputs):
    return py_utils.NestedMap(
        flops=inputs.num_elements(),
        out_shapes=(tshape.Shape([inputs[0], inputs[3]]),))


class SubsampleAndPad(base_layer.BaseLayer):
  """Every stride-th pixel, and zeros for the channels that are new.

  [batch, height, width, input_dim] ->
  [batch, ceil(height / stride), ceil(width / stride), output_dim].
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('input_dim', 0, 'Channels of the input.')
    p.Define('output_dim', 0, 'Channels of the output, not fewer.')
    p.Define('stride', 1, 'Stride in both directions.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    if p.output_dim < p.input_dim:
      raise ValueError(
          f'{self.path}: padding cannot go from {p.input_dim} channels to '
          f'{p.output_dim}. Use a projection (a 1x1 convolution) instead.')

  def FProp(self, theta, inputs):
    p = self.params
    sampled = inputs[:, ::p.stride, ::p.stride, :]
    return tf.pad(sampled, [[0, 0]] * 3 + [[0, p.output_dim - p.input_dim]])

  @classmethod
  def FPropMeta(cls, p, inputs):
    batch, height, width, _ = inputs
    out = [batch, -(-height // p.stride), -(-width // p.stride), p.output_dim]
    return py_utils.NestedMap(flops=0, out_shapes=(tshape.Shape(out),))


def Conv(name, size, input_dim, output_dim, stride=1):
  """Params of a size x size convolution without bias, padded as 'SAME'.

  The initial weights are He et al.'s (arXiv 1502.01852).
  """
  return layers.Conv2DLayerNoPadding.Params().Set(
      name=name,
      filter_shape=(size, size, input_dim, output_dim),
      filter_stride=(stride, stride),
      params_init=py_utils.WeightInit.GaussianSqrtFanIn(math.sqrt(2.0)))


def Relu(name):
  """Params of a rectified linear unit."""
  return activations.ActivationLayer.Params().Set(name=name, activation='RELU')


def Sequence(name, sub):
  """Params of the layers `sub`, a list of params, in sequence."""
  return builder_layers.SequentialLayer.Params().Set(name=name, sub=sub)


class Unit(base_layer.BaseLayer):
  """Layers in sequence that are one layer to a pipeline: never cut apart.

  (A SequentialLayer is taken apart when a pipeline is cut into stages.) A
  subclass lists its layers.
  """

  @classmethod
  def Layers(cls, p):
    """Returns the list of the layers' params."""
    raise NotImplementedError(cls)

  def __init__(self, params):
    super().__init__(params)
    self._names = []
    for sub in self.Layers(self.params):
      self.CreateChild(sub.name, sub)
      self._names.append(sub.name)

  def FProp(self, theta, inputs):
    """Runs the layers on one tensor and returns one tensor."""
    with tf.name_scope(self.params.name):
      inputs = self._CastToFPropDtype(inputs)
      for name in self._names:
        inputs = self.children[name].FProp(theta[name], inputs)
      return inputs

  @classmethod
  def FPropMeta(cls, p, inputs):
    sequence = Sequence(p.name, cls.Layers(p))
    return sequence.cls.FPropMeta(sequence, inputs)


def CheckOneOf(what, value, known):
  """Raises a ValueError if `value` isn't one of `known`."""
  if value not in known:
    raise ValueError(
        f'{what} is {value!r}; choose one of {", ".join(map(repr, known))}.')
