"""The layers of an encoder-decoder Transformer, to be run in sequence.

    layer             takes                                  gives
    source_embedding  source ids, segments, positions, (t)   source, segments, (t)
    encoder_000 ...   source, segments, (t)                  the same
    target_embedding  source, segments, (t)                  target, segments, (m)
    decoder_000 ...   target, segments, (m)                  the same
    softmax           target, segments, (m)                  losses and hits

(t) stands for the target's ids, segments, positions and labels: until the
decoder begins, the target crosses stages as integers. (m) stands for what the
encoder gives, the memory, its segments, and the labels. A pipeline may be cut
between any two layers. Segments are those of transformer.py: they tell apart
what is packed into a row, 0 is padding, and a target token sees the source of
its own segment.

From target_embedding on, the layers also run token by token (ExtendStep), for
greedy_decoding.py.
"""

import lingvo.compat as tf
from lingvo.core import batch_major_attention
from lingvo.core import py_utils

from lingvo_gpipe.layers import token_layers
from lingvo_gpipe.layers import transformer


class TargetEmbedding(token_layers.TokenEmbedding):
  """Normalises what the encoder gives, and embeds the target."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define(
        'tied', False,
        "Whether the weight `w` is another layer's (PipeliningLayer: "
        'shared_weights).')
    p.Define('ln_tpl', transformer.LayerNorm(), 'Normalises the memory.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    self.CreateChild('ln', p.ln_tpl.Copy().Set(input_dim=p.dim))

  def CreateVariable(self, name, *args, **kwargs):
    if not (self.params.tied and name == 'w'):
      super().CreateVariable(name, *args, **kwargs)

  def FProp(self, theta, source, source_segment_ids, ids, segment_ids,
            positions, *others):
    """Runs the layer.

    Args:
      theta: NestedMap of the weights.
      source: Floats [batch, source_time, dim], of the last encoder layer.
      source_segment_ids: Ints [batch, source_time].
      ids: Ints [batch, time], the target's tokens, shifted to the right.
      segment_ids: Ints [batch, time].
      positions: Ints [batch, time], each token's place in its segment.
      *others: Tensors that later layers want.

    Returns:
      (x, segment_ids, memory, source_segment_ids, *others), where x is [batch,
      time, dim] and memory is like source.
    """
    memory = self.Memory(theta, source)
    return super().FProp(theta, ids, segment_ids, positions, memory,
                         source_segment_ids, *others)

  def Memory(self, theta, source):
    """What the decoder attends to, like source."""
    return self.ln.FProp(theta.ln, source)

  def InitStates(self, theta, batch_size, max_length):
    """No state; see DecoderLayer."""
    del theta, batch_size, max_length
    return py_utils.NestedMap()

  def ExtendStep(self, theta, ids, memory, memory_segment_ids, states, time_step):
    """Embeds one token of each target: ids, ints [batch, 1]."""
    del memory, memory_segment_ids
    positions = tf.fill(tf.shape(ids), time_step)
    x, _ = super().FProp(theta, ids, None, positions)
    return x, states

  @classmethod
  def FPropMeta(cls, p, source, source_segment_ids, ids, segment_ids, positions,
                *others):
    meta = super().FPropMeta(p, ids, segment_ids, positions, source,
                             source_segment_ids, *others)
    meta.flops += 8 * source.num_elements()
    return meta


class DecoderLayer(batch_major_attention.TransformerLayer):
  """Attention to earlier tokens and to the memory, and a feed-forward network."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.has_aux_atten = True
    p.mask_self_atten = True
    return p

  def FProp(self, theta, x, segment_ids, memory, memory_segment_ids, *others):
    """Runs the layer.

    Args:
      theta: NestedMap of the weights.
      x: Floats [batch, time, dim].
      segment_ids: Ints [batch, time].
      memory: Floats [batch, source_time, dim].
      memory_segment_ids: Ints [batch, source_time].
      *others: Tensors that later layers want.

    Returns:
      (y, segment_ids, memory, memory_segment_ids, *others), where y is like x.
    """
    # Not by way of the parent's FProp: it rearranges x for beams.
    y, _ = self.self_atten.FProp(
        theta.self_atten, x, None, None,
        segment_mask=transformer.SelfAttentionMask(segment_ids, causal=True))
    y, _ = self.cross_atten.FProp(
        theta.cross_atten, y, memory, None,
        segment_mask=_CrossAttentionMask(segment_ids, memory_segment_ids))
    y = self.fflayer.FProp(theta.fflayer, y, None)
    y.set_shape(x.shape)
    return (y, segment_ids, memory, memory_segment_ids) + others

  def InitStates(self, theta, batch_size, max_length):
    """The keys and values of no token.

    Args:
      theta: NestedMap of the weights.
      batch_size: An int or int32 scalar.
      max_length: The number of tokens there may be, an int.

    Returns:
      NestedMap of tensors [max_length, batch, heads, dim / heads].
    """
    atten = self.self_atten.atten
    return atten.InitStates(theta.self_atten.atten, batch_size, max_length)

  def ExtendStep(self, theta, x, memory, memory_segment_ids, states, time_step):
    """Runs the layer on one more token of each target.

    Args:
      theta: NestedMap of the weights.
      x: Floats [batch, 1, dim].
      memory: Floats [batch, source_time, dim].
      memory_segment_ids: Ints [batch, source_time], 0 for padding and else 1.
      states: What InitStates or the step before gave.
      time_step: int32 scalar, the token's place.

    Returns:
      (y, states), where y is like x.
    """
    ones = tf.ones_like(memory_segment_ids[:, :1])
    mask = _CrossAttentionMask(ones, memory_segment_ids)
    y, _, states = super().ExtendStep(
        theta, x, memory, None, states, time_step,
        aux_segment_mask=tf.squeeze(mask, 2))
    return y, states

  @classmethod
  def FPropMeta(cls, p, x, segment_ids, memory, memory_segment_ids, *others):
    """FLOPs of the matrix products: those that masks hide are done too."""
    batch, time, dim = x
    source_time = memory[1]
    atten_dim = p.tr_atten_tpl.hidden_dim or dim
    per_token = (
        transformer.SelfAttentionFlops(dim, time, atten_dim) +
        4 * atten_dim * (dim + source_time) +  # Without keys and values.
        4 * dim * p.tr_fflayer_tpl.hidden_dim)
    per_source_token = 4 * atten_dim * dim  # Their keys and values.
    return py_utils.NestedMap(
        flops=batch * (time * per_token + source_time * per_source_token),
        out_shapes=(x, segment_ids, memory, memory_segment_ids) + others)


def _CrossAttentionMask(segment_ids, memory_segment_ids):
  """What is added to the logits of attention to the memory.

  Args:
    segment_ids: Ints [batch, time].
    memory_segment_ids: Ints [batch, source_time].

  Returns:
    float32 [batch, 1, time, source_time]: 0 where there is something to see,
    and else a very large negative number. What is padding sees everything:
    nothing to see at all would give NaN where such a number is infinite
    (float16).
  """
  query, key = segment_ids[:, :, None], memory_segment_ids[:, None, :]
  hidden = tf.logical_and(tf.not_equal(query, key), query > 0)
  mask = tf.cast(hidden, tf.float32) * batch_major_attention.GetDtypeMin()
  return mask[:, None]


class TargetSoftmax(token_layers.TokenSoftmax):
  """The loss of each target token, and whether it has the largest logit."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define(
        'logits_abs_max', 0.0,
        'If not 0, logits are clipped to this absolute value, as the paper does '
        'in section 5 to keep deep models stable.')
    return p

  def FProp(self, theta, x, segment_ids, memory=None, memory_segment_ids=None,
            labels=None):
    """Runs the layer.

    Args:
      theta: NestedMap of the weights.
      x: Floats [batch, time, input_dim].
      segment_ids: Not used.
      memory: Not used.
      memory_segment_ids: Not used.
      labels: Ints [batch, time], or None.

    Returns:
      (loss, hit), both float32 [batch, time]: the cross-entropy in nats, and 1
      where the label has the largest logit, else 0. Without labels, the logits,
      float32 [batch, time, vocab_size].
    """
    del memory, memory_segment_ids
    p = self.params
    logits = super().FProp(theta, x, segment_ids)
    if p.logits_abs_max:
      logits = tf.clip_by_value(logits, -p.logits_abs_max, p.logits_abs_max)
    if labels is None:
      return logits
    smoothing = 0.0 if self.do_eval else p.label_smoothing
    loss = token_layers.SmoothedCrossEntropy(
        tf.reshape(logits, [-1, p.vocab_size]), tf.reshape(labels, [-1]),
        smoothing)
    best = tf.argmax(logits, -1, output_type=labels.dtype)
    hit = tf.cast(tf.equal(best, labels), tf.float32)
    return tf.reshape(loss, tf.shape(labels)), hit

  def InitStates(self, theta, batch_size, max_length):
    """No state; see DecoderLayer."""
    del theta, batch_size, max_length
    return py_utils.NestedMap()

  def ExtendStep(self, theta, x, memory, memory_segment_ids, states, time_step):
    """The logits [batch, 1, vocab_size] of x [batch, 1, input_dim]."""
    del memory, memory_segment_ids, time_step
    return self.FProp(theta, x, None), states

  @classmethod
  def FPropMeta(cls, p, x, segment_ids, memory=None, memory_segment_ids=None,
                labels=None):
    meta = super().FPropMeta(p, x, segment_ids, labels)
    if labels is not None:
      meta.out_shapes = (labels, labels)
    return meta
