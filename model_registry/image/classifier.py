"""Image classification with the network in a pipeline."""

import lingvo.compat as tf
from lingvo.core import base_model
from lingvo.core import py_utils

from lingvo_gpipe import pipelining_layer


class PipelinedClassifier(base_model.BaseTask):
  """Softmax classification of images.

  The pipeline takes images, float32 [batch, height, width, channels], and
  returns logits [batch, num_classes]. Labels don't travel through it.

  Weight decay is Lingvo's p.train.l2_regularizer_weight, which leaves batch
  normalisation alone.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('pipeline', pipelining_layer.PipeliningLayer.Params(),
             'The network, from images to logits.')
    p.Define('label_smoothing', 0.0, 'In training, the share of the target '
             'probability that is spread evenly over all classes.')
    return p

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('pipeline', self.params.pipeline)

  def ComputePredictions(self, theta, input_batch):
    """Runs the network.

    Args:
      theta: A NestedMap of the weights.
      input_batch: A NestedMap with `image`, float32 [batch, height, width,
        channels].

    Returns:
      A NestedMap with `logits`, float32 [batch, num_classes].
    """
    logits = self.pipeline.FProp(theta.pipeline, input_batch.image)
    with tf.ops.colocate_with(logits):
      return py_utils.NestedMap(logits=tf.cast(logits, tf.float32))

  def ComputeLoss(self, theta, predictions, input_batch):
    """The metrics, averaged over real examples.

    Args:
      theta: Not used.
      predictions: What ComputePredictions returns.
      input_batch: A NestedMap with `label`, int64 [batch], and `weight`,
        float32 [batch]: 1 for a real example, 0 for one that fills it up.

    Returns:
      A dict of pairs (value, weight), float32 scalars, and a dict of tensors
      float32 [batch], `loss` and `correct`.
    """
    del theta
    logits, weight = predictions.logits, input_batch.weight
    with tf.ops.colocate_with(logits):
      hits = tf.equal(tf.argmax(logits, axis=-1), input_batch.label)
      per_example = {
          'loss': self.PerExampleLoss(logits, input_batch.label),
          'correct': tf.cast(hits, tf.float32),
      }
      num_examples = tf.reduce_sum(weight)

      def _Mean(values):
        return tf.reduce_sum(values * weight) / tf.maximum(num_examples, 1.0)

      loss, accuracy = _Mean(per_example['loss']), _Mean(per_example['correct'])
      # Lingvo averages metrics over the splits of a batch; this one is a sum.
      num_samples = num_examples * self.cluster.num_splits_per_client
      metrics = {
          'loss': (loss, num_examples),
          'log_pplx': (loss, num_examples),
          'accuracy': (accuracy, num_examples),
          'error': (1.0 - accuracy, num_examples),
          'num_samples_in_batch': (num_samples, tf.constant(1.0)),
      }
    return metrics, per_example

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
