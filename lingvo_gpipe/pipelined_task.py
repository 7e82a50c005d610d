"""PipelinedTask: a Lingvo task whose network is a pipeline."""

import lingvo.compat as tf
from lingvo.core import base_model
from lingvo.core import py_utils

from lingvo_gpipe import cost_model
from lingvo_gpipe import loss
from lingvo_gpipe import loss_scaling
from lingvo_gpipe import pipelining_layer
from lingvo_gpipe.feature_extraction import ToTuple


class PipelinedTask(base_model.BaseTask):
  """Base class of tasks whose network is one PipeliningLayer.

  A subclass says what goes into the pipeline (`PipelineInputs`), what the loss
  needs besides what comes out (`PipelineTargets`), and how metrics follow from
  the two (`MicroBatchMetrics`). These are asked for apart so that the pipeline
  can take the loss of each micro-batch by itself: p.pipeline.schedule decides,
  and the numbers are the same.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('pipeline', pipelining_layer.PipeliningLayer.Params(),
             'The network.')
    p.Define(
        'auxiliary_losses', {},
        '{metric: factor}: metrics that are added to the loss, each times its '
        'factor.')
    p.Define('loss_scaling', loss_scaling.Params(),
             'For p.fprop_dtype float16.')
    # Said here, so that an override by text knows that it is a dtype.
    p.fprop_dtype = tf.float32
    return p

  def __init__(self, params):
    super().__init__(loss_scaling.WithLearner(params))
    self.CreateChild('pipeline', self.params.pipeline)

  def PipelineInputs(self, theta, input_batch):
    """What goes into the pipeline.

    Args:
      theta: NestedMap of the weights.
      input_batch: NestedMap of the input generator's tensors.

    Returns:
      A tuple of tensors [batch, ...]: the arguments of the first layer.
    """
    raise NotImplementedError(f'{type(self).__name__}.PipelineInputs')

  def PipelineTargets(self, theta, input_batch):
    """What the metrics need besides the pipeline's outputs.

    Args:
      theta: NestedMap of the weights.
      input_batch: NestedMap of the input generator's tensors.

    Returns:
      NestedMap of tensors [batch, ...]: labels, weights.
    """
    raise NotImplementedError(f'{type(self).__name__}.PipelineTargets')

  def MicroBatchMetrics(self, theta, outputs, targets):
    """The metrics of a micro-batch, or of the whole mini-batch.

    Args:
      theta: NestedMap of the weights of this task, without the pipeline's.
      outputs: What the pipeline returned for these examples.
      targets: NestedMap of PipelineTargets for these examples.

    Returns:
      {name: (value, weight)}, float32 scalars: a mean and what it weighs, such
      as the number of tokens it is over. One is named `loss`. Weights depend
      on the targets, not on the outputs.
    """
    raise NotImplementedError(f'{type(self).__name__}.MicroBatchMetrics')

  def ComputePredictions(self, theta, input_batch):
    """Runs the network, unless the loss is to be taken inside.

    Args:
      theta: NestedMap of the weights.
      input_batch: NestedMap of the input generator's tensors.

    Returns:
      NestedMap with `outputs`, what the pipeline returns; or with `inputs`, a
      tuple, where the pipeline takes the loss micro-batch by micro-batch.
    """
    inputs = self.PipelineInputs(theta, input_batch)
    if self.pipeline.takes_loss_inside:
      return py_utils.NestedMap(inputs=inputs)
    return py_utils.NestedMap(
        outputs=self.pipeline.FProp(theta.pipeline, *inputs))

  def ComputeLoss(self, theta, predictions, input_batch):
    """The metrics.

    Args:
      theta: NestedMap of the weights.
      predictions: What ComputePredictions returns.
      input_batch: NestedMap of the input generator's tensors.

    Returns:
      ({name: (value, weight)}, {}).
    """
    own_theta = py_utils.NestedMap(
        {key: value for key, value in theta.items() if key != 'pipeline'})
    terms = dict(self.params.auxiliary_losses, loss=1.)
    with tf.device(self.pipeline.stage_devices[-1]):
      targets = self.PipelineTargets(theta, input_batch)
      if 'outputs' in predictions:
        metrics = loss.Loss(self.MicroBatchMetrics, own_theta, terms).Whole(
            predictions.outputs, targets)
        return metrics, {}
    metrics = self.pipeline.FPropLoss(
        theta.pipeline, self.MicroBatchMetrics, own_theta, targets,
        *predictions.inputs, terms=terms,
        gradient_scale=loss_scaling.ScaleOf(self))
    return metrics, {}

  def Inference(self):
    """What an exported model takes and gives (export.py).

    Here: what the pipeline does, for any batch size. Inputs are named `input`,
    or `input_0` and so on, and outputs likewise. A subclass gives them names of
    its own, leaves out what only the loss needs, or decodes.

    Returns:
      {'default': (outputs, inputs)}, two dicts of tensors and placeholders by
      name, as Lingvo's tasks return it.

    Raises:
      ValueError: p.pipeline.input_shapes isn't set.
    """
    p = self.params.pipeline
    if not p.input_shapes:
      raise ValueError(
          f'{self.params.name}: input_shapes of the pipeline {p.name} is not '
          'set, so what an exported model takes is not known. Set it, such as '
          '[[batch, height, width, channels]], or define Inference in '
          f'{type(self).__name__}.')

    def Placeholder(spec):
      shape = spec.shape.as_list()
      shape[p.batch_dim] = None
      return tf.placeholder(spec.dtype, shape)

    specs = tuple(map(cost_model.Spec, ToTuple(p.input_shapes)))
    inputs = py_utils.Transform(lambda s: s and Placeholder(s), specs)
    outputs = self.pipeline.FProp(self.theta.pipeline, *inputs)
    return {'default': (_Named('output', outputs), _Named('input', inputs))}


def _Named(name, tensors):
  """A NestedMap of the tensors in some structure, numbered if there are several."""
  tensors = [x for x in py_utils.Flatten(tensors) if x is not None]
  if len(tensors) == 1:
    return py_utils.NestedMap({name: tensors[0]})
  return py_utils.NestedMap(
      {f'{name}_{i}': x for i, x in enumerate(tensors)})
