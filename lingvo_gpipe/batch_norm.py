"""Batch normalisation that is right under micro-batches.

Each micro-batch is normalised by its own mean and variance (GPipe, section 2.2).
The moving averages, used in evaluation, must be updated once a mini-batch, from
all its micro-batches, and not again when the gradient recomputes them. Lingvo's
BatchNormLayerNoPadding does that, by accumulators. BatchNormLayer assigns its
moving averages on the spot; `Adopt` makes such layers collect statistics in
accumulators too.

The whole mini-batch's statistics can't be used to normalise in a pipeline: they
are known only when the last micro-batch has passed the layer, and the first
would have to wait for it.
"""

import functools

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import bn_layers
from lingvo.core import py_utils


class _Statistic(base_layer.Accumulator):
  """A float32 tensor, zeros at the start of a step."""

  def __init__(self, shape):
    super().__init__()
    self._shape = shape

  def DefaultValue(self):
    return tf.zeros(self._shape, tf.float32)


class _MicroBatchStatistics:
  """Mixed into a BatchNormLayer: the mini-batch's statistics from its parts."""

  def ComputeAndUpdateMoments(self, theta, inputs, paddings=None, **kwargs):
    """As in BatchNormLayer, but collects the moments for the end of the step.

    Args:
      theta: NestedMap of the layer's weights.
      inputs: [..., dim].
      paddings: [..., 1], 1 where there is padding, or None.
      **kwargs: For a subclass's _GetBetaGamma.

    Returns:
      (mean, variance, beta, gamma) to normalise with.
    """
    p = self.params
    if self.do_eval or p.freeze_bn_stats:
      return super().ComputeAndUpdateMoments(theta, inputs, paddings, **kwargs)
    if paddings is None:
      paddings = self._GetDefaultPaddings(inputs)
    axes = list(range(inputs.shape.rank - 1))
    mean, variance = bn_layers.ComputeMoments(inputs, paddings, axes)
    self._Collect(_Count(inputs, paddings), mean, variance)
    beta, gamma = self._GetBetaGamma(theta, inputs, **kwargs)
    if p.use_moving_avg_in_training:
      mean, variance = theta.moving_mean, theta.moving_variance
    mean = py_utils.CheckNumerics(mean, f'mean of {p.name} is not finite')
    variance = py_utils.CheckNumerics(
        variance, f'variance of {p.name} is not finite')
    return mean, variance, beta, gamma

  def _Collect(self, count, mean, variance):
    """Joins a micro-batch's moments to those before, without cancellation.

    Chan, Golub, LeVeque, 'Algorithms for computing the sample variance', 1983.
    """
    acc = self.accumulators
    old = acc.pipeline_count.GetValue()
    mean, variance = tf.cast(mean, tf.float32), tf.cast(variance, tf.float32)
    total = old + count
    part = count / tf.maximum(total, 1.)
    delta = mean - acc.pipeline_mean.GetValue()
    acc.pipeline_count.SetValue(total)
    acc.pipeline_mean.SetValue(acc.pipeline_mean.GetValue() + delta * part)
    acc.pipeline_squares.SetValue(
        acc.pipeline_squares.GetValue() + variance * count +
        tf.square(delta) * old * part)

  def PostTrainingStepUpdate(self):
    """Moves the averages towards the mini-batch's mean and variance, once."""
    acc = self.accumulators
    count = acc.pipeline_count.GetValue()
    variance = acc.pipeline_squares.GetValue() / tf.maximum(count, 1.)
    updates = [super().PostTrainingStepUpdate()]
    for var, value in ((self.vars.moving_mean, acc.pipeline_mean.GetValue()),
                       (self.vars.moving_variance, variance)):
      with tf.ops.colocate_with(var):
        delta = (var - tf.cast(value, var.dtype)) * (1. - self._decay)
        # As in Lingvo: a step without finite statistics leaves no trace.
        valid = tf.reduce_all(tf.math.is_finite(delta)) & (count > 0.)
        updates.append(
            tf.assign_sub(var, tf.where(valid, delta, tf.zeros_like(delta))))
    for name in ('pipeline_count', 'pipeline_mean', 'pipeline_squares'):
      acc[name].Reset()
    return tf.group(*updates)


def _Count(inputs, paddings):
  """The number of vectors in inputs that aren't padding, float32 scalar."""
  mask = 1. - tf.cast(paddings, tf.float32)
  vectors = tf.size(inputs) / tf.shape(inputs)[-1]
  each = tf.cast(vectors, tf.float32) / tf.cast(tf.size(mask), tf.float32)
  return tf.reduce_sum(mask) * each


@functools.lru_cache(maxsize=None)
def _Collecting(cls):
  return type(cls.__name__, (_MicroBatchStatistics, cls), {})


def Adopt(layer):
  """Makes a BatchNormLayer collect statistics; leaves other layers as they are.

  Args:
    layer: A layer, already created. It keeps its params, variables and name; its
      children aren't looked at.
  """
  if not isinstance(layer, bn_layers.BatchNormLayer) or isinstance(
      layer, _MicroBatchStatistics):
    return
  layer.__class__ = _Collecting(type(layer))
  dim = layer.params.dim
  layer.RegisterAccumulator('pipeline_count', _Statistic([]))
  layer.RegisterAccumulator('pipeline_mean', _Statistic([dim]))
  layer.RegisterAccumulator('pipeline_squares', _Statistic([dim]))
