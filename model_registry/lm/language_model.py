"""Language modelling with the network in a pipeline."""

import math

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import pipelined_task


class LanguageModel(pipelined_task.PipelinedTask):
  """Predicts each token from those before it.

  The pipeline is language_model.LanguageModelLayers or the like: it takes ids,
  segment ids, positions and labels, ints [batch, time], and returns the loss of
  each token, float32 [batch, time]. Batches are those of packing.Batch.
  """

  def PipelineInputs(self, theta, input_batch):
    return (input_batch.ids, input_batch.segment_ids, input_batch.positions,
            input_batch.labels)

  def PipelineTargets(self, theta, input_batch):
    return py_utils.NestedMap(
        weights=input_batch.weights, sizes=input_batch.sizes)

  def MicroBatchMetrics(self, theta, outputs, targets):
    """Means over real tokens, and over the bytes that they stand for.

    Args:
      theta: Not used.
      outputs: float32 [batch, time], the loss of each token in nats.
      targets: NestedMap of float32 [batch, time]: `weights`, 1 for a real
        token; `sizes`, the bytes that it stands for.

    Returns:
      {name: (value, weight)}: `loss` and `log_pplx`, nats a token;
      `bits_per_byte`.
    """
    total = tf.reduce_sum(outputs * targets.weights)
    num_tokens = tf.reduce_sum(targets.weights)
    num_bytes = tf.reduce_sum(targets.sizes * targets.weights)
    loss = total / tf.maximum(num_tokens, 1.0)
    bits = total / math.log(2.0) / tf.maximum(num_bytes, 1.0)
    return {
        'loss': (loss, num_tokens),
        'log_pplx': (loss, num_tokens),
        'bits_per_byte': (bits, num_bytes),
    }

  def Inference(self):
    """An exported model says how likely each token is to follow.

    Returns:
      As the parent's. In: `ids`, int32 [batch, time]; a row is one text, from
      sos on, and after its end there may be anything. Out: `logits` and
      `log_probs`, float32 [batch, time, vocab_size], of the token after each.
    """
    ids = tf.placeholder(tf.int32, [None, None])
    positions = tf.broadcast_to(tf.range(tf.shape(ids)[1]), tf.shape(ids))
    logits = self.pipeline.FProp(
        self.theta.pipeline, ids, tf.ones_like(ids), positions, None)
    outputs = py_utils.NestedMap(
        logits=logits, log_probs=tf.nn.log_softmax(logits))
    return {'default': (outputs, py_utils.NestedMap(ids=ids))}
