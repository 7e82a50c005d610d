"""From tokens to vectors and back: the two ends of a Transformer pipeline."""

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import layers
from lingvo.core import py_utils
from lingvo.core import tshape

from lingvo_gpipe.layers import transformer


class TokenEmbedding(base_layer.BaseLayer):
  """Token ids to vectors, the sinusoids of their positions added.

  The weight `w`, [vocab_size, dim], can also be a TokenSoftmax's.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('vocab_size', 0, 'The number of tokens.')
    p.Define('dim', 0, 'Of the vectors.')
    p.Define('dropout_prob', 0.0, 'Of the vectors.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    self.CreateChild(
        'positions',
        layers.PositionalEmbeddingLayer.Params().Set(embedding_dim=p.dim))
    self.CreateChild(
        'dropout',
        layers.DeterministicDropoutLayer.Params().Set(
            keep_prob=1.0 - p.dropout_prob))

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    p = self.params
    self.CreateVariable('w', _TokenWeights(p, [p.vocab_size, p.dim]))

  def FProp(self, theta, ids, segment_ids, positions, *others):
    """Embeds tokens.

    Args:
      theta: NestedMap of the weights.
      ids: Ints [batch, time], from 0 to vocab_size - 1.
      segment_ids: Ints [batch, time], for the layers that follow.
      positions: Ints [batch, time], each token's place in its segment.
      *others: Tensors that later layers want.

    Returns:
      (x, segment_ids, *others), where x is [batch, time, dim].
    """
    dtype = py_utils.FPropDtype(self.params)
    # The variance is 1 whatever dim is, like the sinusoids' (almost).
    x = tf.gather(theta.w, ids) * self.params.dim**0.5
    x += self.positions.FPropWithPosition(
        theta.positions, tf.cast(positions, tf.float32))
    x = self.dropout.FProp(theta.dropout, tf.cast(x, dtype))
    return (x, segment_ids) + others

  @classmethod
  def FPropMeta(cls, p, ids, segment_ids, positions, *others):
    """FLOPs of scale, sinusoids and sum; to look a row up is none."""
    del positions
    x = tshape.Shape(list(ids) + [p.dim])
    return py_utils.NestedMap(
        flops=4 * x.num_elements(), out_shapes=(x, segment_ids) + others)


class TokenSoftmax(base_layer.BaseLayer):
  """Vectors to logits over the tokens; or, given labels, to the loss.

  The loss of each token leaves the pipeline instead of its logits, which are
  vocab_size times as large: those of one micro-batch exist at a time, and are
  recomputed with the rest of the stage.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('input_dim', 0, 'Of the vectors.')
    p.Define('vocab_size', 0, 'The number of tokens.')
    p.Define(
        'tied', False,
        'Whether the weight `w` is another layer\'s, such as the embedding\'s '
        '(PipeliningLayer: shared_weights).')
    p.Define('label_smoothing', 0.0, 'In training, the share of the target '
             'probability that is spread evenly over all tokens.')
    p.Define('ln_tpl', transformer.LayerNorm(), 'Normalises the vectors.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    self.CreateChild('ln', p.ln_tpl.Copy().Set(input_dim=p.input_dim))

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    p = self.params
    if not p.tied:
      self.CreateVariable('w', _TokenWeights(p, [p.vocab_size, p.input_dim]))
    self.CreateVariable(
        'b', py_utils.WeightParams([p.vocab_size],
                                   py_utils.WeightInit.Constant(0.0), p.dtype))

  def FProp(self, theta, x, segment_ids, labels=None):
    """The loss of each token, or the logits.

    Args:
      theta: NestedMap of the weights.
      x: Floats [batch, time, input_dim].
      segment_ids: Not used.
      labels: Ints [batch, time], or None.

    Returns:
      The cross-entropy in nats, float32 [batch, time]; without labels, the
      logits, float32 [batch, time, vocab_size].
    """
    del segment_ids
    p = self.params
    batch, time, _ = py_utils.GetShape(x)
    x = tf.reshape(self.ln.FProp(theta.ln, x), [-1, p.input_dim])
    w, b = tf.cast(theta.w, x.dtype), tf.cast(theta.b, x.dtype)
    logits = tf.cast(tf.matmul(x, w, transpose_b=True) + b, tf.float32)
    if labels is None:
      return tf.reshape(logits, [batch, time, p.vocab_size])
    smoothing = 0.0 if self.do_eval else p.label_smoothing
    loss = SmoothedCrossEntropy(logits, tf.reshape(labels, [-1]), smoothing)
    return tf.reshape(loss, [batch, time])

  @classmethod
  def FPropMeta(cls, p, x, segment_ids, labels=None):
    """FLOPs of the matrix product."""
    flops = 2 * segment_ids.num_elements() * p.input_dim * p.vocab_size
    if labels is None:
      labels = tshape.Shape(list(segment_ids) + [p.vocab_size])
    return py_utils.NestedMap(flops=flops, out_shapes=(labels,))


def SmoothedCrossEntropy(logits, labels, smoothing):
  """Cross-entropy in nats with labels that are smoothed.

  Args:
    logits: float32 [n, classes].
    labels: Ints [n].
    smoothing: The share of the target probability that is spread evenly over
      all classes.

  Returns:
    float32 [n].
  """
  loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
      labels=labels, logits=logits)
  if not smoothing:
    return loss
  uniform = tf.reduce_logsumexp(logits, -1) - tf.reduce_mean(logits, -1)
  return (1.0 - smoothing) * loss + smoothing * uniform


def _TokenWeights(p, shape):
  """WeightParams of an embedding [vocab_size, dim]."""
  return py_utils.WeightParams(
      shape, py_utils.WeightInit.Gaussian(shape[1]**-0.5), p.dtype)
