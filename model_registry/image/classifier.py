"""Image classification with the network in a pipeline."""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import pipelined_task


class PipelinedClassifier(pipelined_task.PipelinedTask):
  """Softmax classification of images.

  The pipeline takes images, float32 [batch, height, width, channels], and
  returns logits [batch, num_classes]. Labels don't travel through it.

  Weight decay is Lingvo's p.train.l2_regularizer_weight, which leaves batch
  normalisation alone.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('label_smoothing', 0.0, 'In training, the share of the target '
             'probability that is spread evenly over all classes.')
    return p

  def PipelineInputs(self, theta, input_batch):
    """The images, of input_batch.image."""
    del theta
    return (input_batch.image,)

  def PipelineTargets(self, theta, input_batch):
    """`label`, int64 [batch], and `weight`, float32 [batch].

    A weight is 1 for a real example, 0 for one that fills the batch up.
    """
    del theta
    return py_utils.NestedMap(label=input_batch.label, weight=input_batch.weight)

  def MicroBatchMetrics(self, theta, outputs, targets):
    """The metrics, averaged over real examples.

    Args:
      theta: Not used.
      outputs: Logits [batch, num_classes].
      targets: As PipelineTargets gives them.

    Returns:
      {name: (value, weight)}, float32 scalars.
    """
    del theta
    logits = tf.cast(outputs, tf.float32)
    num_examples = tf.reduce_sum(targets.weight)

    def _Mean(values):
      return tf.reduce_sum(values * targets.weight) / tf.maximum(
          num_examples, 1.0)

    loss = _Mean(self.PerExampleLoss(logits, targets.label))
    hits = tf.equal(tf.argmax(logits, axis=-1), targets.label)
    accuracy = _Mean(tf.cast(hits, tf.float32))
    return {
        'loss': (loss, num_examples),
        'log_pplx': (loss, num_examples),
        'accuracy': (accuracy, num_examples),
        'error': (1.0 - accuracy, num_examples),
    }

  def ComputeLoss(self, theta, predictions, input_batch):
    """As PipelinedTask's, with the number of real examples."""
    metrics, per_example = super().ComputeLoss(theta, predictions, input_batch)
    # Lingvo averages metrics over the splits of a batch; this one is a sum.
    num_samples = tf.reduce_sum(
        input_batch.weight) * self.cluster.num_splits_per_client
    metrics['num_samples_in_batch'] = (num_samples, tf.constant(1.0))
    return metrics, per_example

  def Inference(self):
    """An exported model takes images as the input generator gives them.

    Returns:
      As the parent's. In: `image`, float32 [batch, height, width, channels].
      Out: `logits` and `probs`, float32 [batch, num_classes], and `prediction`,
      the likeliest class, int64 [batch].
    """
    outputs, inputs = super().Inference()['default']
    logits = tf.cast(outputs.output, tf.float32)
    outputs = py_utils.NestedMap(
        logits=logits, probs=tf.nn.softmax(logits),
        prediction=tf.argmax(logits, -1))
    return {'default': (outputs, py_utils.NestedMap(image=inputs.input))}

  def PerExampleLoss(self, logits, labels):
    """Cross-entropy with the (in training, smoothed) labels, in nats.

    Args:
      logits: float32 [batch, num_classes].
      labels: int64 [batch].

    Returns:
      float32 [batch].
    """
    num_classes = py_utils.GetShape(logits)[-1]
    smoothing = 0.0 if self.do_eval else self.params.label_smoothing
    targets = tf.one_hot(labels, num_classes)
    targets = targets * (1.0 - smoothing) + smoothing / num_classes
    return tf.nn.softmax_cross_entropy_with_logits(targets, logits)
