"""The loss inside the loop: what the last stage adds to its cell.

Metrics are means, each with a weight: the number of tokens, say, that it is the
mean of. The loss is a sum of some of them, each times a factor. On the whole
mini-batch a metric is the mean over all its tokens, so a micro-batch's part of
it is value * weight / the weight of the whole mini-batch. That is known before
the loop, since weights depend on the targets alone; the micro-batch's loss and
gradients then simply add up.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import graph_walk
from lingvo_gpipe import placement
from lingvo_gpipe.loop_building import LoopBuilding
from lingvo_gpipe.stage import Specs


class Loss:
  """The loss of a pipeline, micro-batch by micro-batch.

  Attributes:
    theta: NestedMap of the weights that the metrics use.
  """

  def __init__(self, metrics_fn, theta, terms, gradient_scale=None):
    """Constructor.

    Args:
      metrics_fn: (theta, outputs, targets) -> {name: (value, weight)}, scalars.
      theta: NestedMap of the weights that it uses.
      terms: {name: factor}; the loss is the sum of these metrics, each times
        its factor.
      gradient_scale: float32 scalar, or None for 1: what gradients of half
        precision are multiplied by inside the loop, so that they don't vanish.
    """
    self._metrics_fn = metrics_fn
    self.theta = theta
    self._terms = terms
    self._gradient_scale = gradient_scale
    self._outputs_spec = None

  def TotalsSpec(self):
    """The TensorSpecs of what `Totals` gives."""
    return py_utils.NestedMap(
        {name: tf.TensorSpec([], tf.float32) for name in self._terms})

  def CellFn(self, cell_fn):
    """The last stage's cell function with the metrics behind it.

    Args:
      cell_fn: The cell function, (theta, state0, inputs) -> (outputs, extras).

    Returns:
      (theta, state0, inputs) -> (state1, extras). theta has `cell` and `loss`;
      inputs have `x` and `aside`, with `targets` and `totals`. state1 is a
      NestedMap of scalars: `loss`, and for each metric its weight and its value
      times that.
    """

    def WithMetrics(theta, state0, inputs):
      outputs, extras = cell_fn(theta.cell, state0, inputs.x)
      self._outputs_spec = Specs(outputs)
      metrics = self._Metrics(theta.loss, outputs, inputs.aside.targets)
      sums = {name: value * weight for name, (value, weight) in metrics.items()}
      # A mini-batch without any weight has no loss, rather than NaN.
      loss = tf.add_n([
          factor * tf.math.divide_no_nan(sums[name], inputs.aside.totals[name])
          for name, factor in sorted(self._terms.items())
      ])
      weights = {name: weight for name, (_, weight) in metrics.items()}
      return py_utils.NestedMap(
          loss=loss, sums=py_utils.NestedMap(sums),
          weights=py_utils.NestedMap(weights)), extras

    return WithMetrics

  def DState1(self):
    """The gradients of the cell's state1, times the gradient_scale."""
    scale = 1. if self._gradient_scale is None else self._gradient_scale
    return py_utils.NestedMap(loss=tf.identity(scale))

  def Unscaled(self, d_loss):
    """What gradients from the loop, times this, are for the loss's gradient."""
    if self._gradient_scale is None:
      return d_loss
    return d_loss / self._gradient_scale

  @LoopBuilding()
  def Totals(self, targets, layout):
    """The weights of the loss's terms for the whole mini-batch.

    Args:
      targets: slices.Readable of the targets.
      layout: Their layout.

    Returns:
      NestedMap {name: float32 scalar}.

    Raises:
      ValueError: a weight depends on the outputs or on weights of the network.
    """

    def Body(t, totals):
      # Nothing needs these values; a placeholder that is needed would fail.
      theta, outputs = [
          m.Transform(lambda x: tf.placeholder(x.dtype, x.shape))
          for m in (self.theta, self._outputs_spec)
      ]
      metrics = self._Metrics(theta, outputs, targets.Read(t))
      weights = totals.Pack([metrics[name][1] for name, _ in
                             totals.FlattenItems()])
      _RefuseDependence(weights, theta.Flatten() + outputs.Flatten())
      return t + 1, totals.Transform(tf.identity).Pack(
          [a + b for a, b in zip(totals.Flatten(), weights.Flatten())])

    zeros = self.TotalsSpec().Transform(lambda _: tf.constant(0.))
    device = zeros.Flatten()[0].device
    start, length = [placement.Counter(n, device) for n in (0, layout.length)]
    with tf.device(None), tf.device(placement.BesideInput):
      _, totals = tf.while_loop(
          lambda t, _: t < length, Body, [start, zeros],
          parallel_iterations=1, back_prop=False, name='weights')
    return totals

  def Whole(self, outputs, targets):
    """The metrics of the whole mini-batch, from its outputs.

    Args:
      outputs: What metrics_fn takes.
      targets: NestedMap.

    Returns:
      {name: (value, weight)}, the sum of the terms as `loss`.
    """
    metrics = self._Metrics(self.theta, outputs, targets)
    loss = tf.add_n([
        factor * metrics[name][0] for name, factor in sorted(self._terms.items())
    ])
    return dict(metrics, loss=(loss, metrics['loss'][1]))

  def Added(self, loss, parts):
    """The metrics of the whole mini-batch, from those of its micro-batches.

    Args:
      loss: The sum of the micro-batches' losses.
      parts: NestedMap like the cell's state1 of tensors [micro-batches].

    Returns:
      As Whole.
    """
    weights = parts.weights.Transform(tf.reduce_sum)
    metrics = {
        name: (tf.math.divide_no_nan(tf.reduce_sum(parts.sums[name]), weight),
               weight) for name, weight in weights.items()
    }
    return dict(metrics, loss=(loss, weights.loss))

  def _Metrics(self, theta, outputs, targets):
    """metrics_fn's, checked, as float32 scalars."""
    metrics = self._metrics_fn(theta, outputs, targets)
    missing = sorted((set(self._terms) | {'loss'}) - set(metrics))
    if missing:
      raise ValueError(
          f'The metrics are {", ".join(sorted(metrics))}; {", ".join(missing)} '
          'is missing, which the loss is made of.')
    scalars = {}
    for name, pair in metrics.items():
      value, weight = [tf.cast(tf.convert_to_tensor(x), tf.float32)
                       for x in pair]
      if value.shape.rank or weight.shape.rank:
        raise ValueError(
            f'The metric {name} has a value of shape {value.shape} and a weight '
            f'of shape {weight.shape}; both must be scalars.')
      scalars[name] = (value, tf.stop_gradient(weight))
    return scalars


def CheckTargets(name, targets):
  """Refuses targets that can't be split, or whose gradient somebody may expect.

  Args:
    name: What errors call the pipeline.
    targets: NestedMap of tensors and None.

  Raises:
    ValueError: a target is a scalar, or depends on a trainable variable.
  """
  for key, x in targets.FlattenItems():
    if x is None:
      continue
    if x.shape.rank == 0:
      raise ValueError(
          f'{name}: the target {key} is a scalar, so it can\'t be split into '
          'micro-batches. Give each example its value.')
    for variable in graph_walk.Trainable([x]):
      raise ValueError(
          f'{name}: the target {key} depends on the variable {variable.name}, '
          'and with schedule="1f1b" targets get no gradient. Compute it from '
          'the weights where the metrics are (MicroBatchMetrics), or put a '
          'tf.stop_gradient around it if none is meant.')


def _RefuseDependence(weights, stand_ins):
  """Raises ValueError if a weight needs any of the tensors."""
  for name, weight in weights.FlattenItems():
    # Checks of shapes (py_utils.HasShape) need what only control edges tell of.
    if graph_walk.Needed([weight]) & {x.op for x in stand_ins}:
      raise ValueError(
          f'The weight of the metric {name} depends on the outputs of the '
          'pipeline or on its weights. With schedule="1f1b" it must be known '
          'before the loop: take it from the targets alone.')
