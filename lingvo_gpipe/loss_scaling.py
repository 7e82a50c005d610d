"""Loss scaling: keeps float16 gradients from vanishing.

The smallest number that float16 can tell from zero is 6e-8, and gradients of
activations are often smaller. So the loss is multiplied by a large factor before
gradients are taken, and float32 gradients of the weights are divided by it
after. bfloat16 has the range of float32 and needs none of it.

Source: 'Mixed Precision Training' (arXiv 1710.03740), section 3.2.
"""

import lingvo.compat as tf
from lingvo.core import hyperparams
from lingvo.core import learner
from lingvo.core import py_utils

_LARGEST = 2.0**24


def Params():
  """The params of loss scaling, which a task has as p.loss_scaling."""
  p = hyperparams.Params()
  p.Define('initial_scale', 0.0, 'What the loss is multiplied by at first; 0 '
           'for no loss scaling.')
  p.Define('growth_interval', 2000, 'The scale doubles after this many steps '
           'without overflow, and is halved by a step with one. 0: it stays as '
           'it is.')
  return p


def WithLearner(task_params):
  """A task's params with a learner that scales the loss, if they ask for it.

  Args:
    task_params: The params, with `loss_scaling`. They stay as they are.

  Returns:
    The params, or a copy of them.

  Raises:
    ValueError: they ask for it and have a learner of another kind.
  """
  scale, given = task_params.loss_scaling.initial_scale, task_params.train.learner
  if not scale:
    return task_params
  if given:
    learners = given if isinstance(given, (list, tuple)) else [given]
    if any(issubclass(l.cls, ScalingLearner) for l in learners):
      return task_params
    raise ValueError(
        f'{task_params.name}: loss_scaling.initial_scale is {scale}, but '
        'train.learner is set and scales no loss. Make it a '
        'lingvo_gpipe.loss_scaling.ScalingLearner with this loss_scaling, or '
        'leave train.learner None.')
  p = task_params.Copy()
  p.train.learner = learner.ExtractLearnerFromLegacyParams(
      p.train, cls=ScalingLearner).Set(loss_scaling=p.loss_scaling.Copy())
  return p


def ScaleOf(task):
  """What a task's learner multiplies the loss by, float32 scalar; None for 1."""
  scaling = [l for l in task.learners if isinstance(l, ScalingLearner)]
  return scaling[0].loss_scale if scaling else None


class ScalingLearner(learner.Learner):
  """A learner that takes gradients of the loss times a scale.

  In a step with an overflow, where some gradient isn't finite, all gradients
  count as zero. The scale is a variable, so a checkpoint keeps it.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('loss_scaling', Params(), 'See loss_scaling.Params.')
    return p

  def __init__(self, params):
    if isinstance(params.loss_name, (list, tuple)):
      raise ValueError(
          f'{params.name}: loss scaling takes one loss, and there are '
          f'{len(params.loss_name)} names in loss_name={params.loss_name}.')
    super().__init__(params)
    self._finite = None

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    initial = self.params.loss_scaling.initial_scale
    for name, value in (('loss_scale', initial), ('steps_since_overflow', 0.)):
      self.CreateVariable(
          name,
          py_utils.WeightParams(
              [], py_utils.WeightInit.Constant(value), tf.float32),
          trainable=False)

  @property
  def loss_scale(self):
    """The scale, float32 scalar."""
    return tf.convert_to_tensor(self.vars.loss_scale)

  def Apply(self, metrics, vmap, gradient_mask=None, gradient_adjuster=None):
    """As in Learner. What comes out isn't scaled; `loss_scale` is a metric."""
    name = self.params.loss_name or self.params.name
    value, weight = metrics[name]
    scaled = value * tf.cast(self.loss_scale, value.dtype)
    _, update, eval_metrics = super().Apply(
        dict(metrics, **{name: (scaled, weight)}), vmap, gradient_mask,
        gradient_adjuster)
    eval_metrics['loss_scale'] = (self.loss_scale, tf.constant(1.0))
    with tf.control_dependencies([update]):
      return [value], self._UpdateScale(), eval_metrics

  def AdjustGradients(self, var_grads, gradient_mask=None,
                      gradient_adjuster=None):
    """As in Learner, for gradients of the scaled loss."""
    scale = self.loss_scale
    self._finite = tf.logical_not(py_utils.HasNanOrInfGradient(var_grads))

    def _Unscaled(x):
      # Lingvo stops at a gradient that isn't finite, unless told otherwise.
      return tf.where_v2(self._finite, x / tf.cast(scale, x.dtype), 0.)

    var_grads = var_grads.Transform(
        lambda vg: py_utils.VarGrad(vg.var, _Mapped(_Unscaled, vg.grad)))
    return super().AdjustGradients(var_grads, gradient_mask, gradient_adjuster)

  def _UpdateScale(self):
    """Moves the scale after a step."""
    interval = self.params.loss_scaling.growth_interval
    if not interval:
      return tf.no_op()
    scale, steps = self.loss_scale, self.vars.steps_since_overflow + 1.
    grow = self._finite & (steps >= interval)
    factor = tf.where(self._finite, tf.where(grow, 2., 1.), .5)
    steps = tf.where(grow | ~self._finite, 0., steps)
    scale = tf.clip_by_value(scale * factor, 1., _LARGEST)
    return tf.group(
        tf.assign(self.vars.loss_scale, scale),
        tf.assign(self.vars.steps_since_overflow, steps))


def _Mapped(fn, gradient):
  """fn of a gradient, a tensor or IndexedSlices, computed where that lives."""
  if isinstance(gradient, tf.IndexedSlices):
    return tf.IndexedSlices(
        _Mapped(fn, gradient.values), gradient.indices, gradient.dense_shape)
  with tf.device(gradient.device):
    return fn(gradient)
