"""Transformer layers in sequence, ready to be cut into stages.

They are Lingvo's batch-major ones. Its time-major layers take a weight's
gradient for each time step apart and then add them up, whatever the size of the
batch: in a pipeline, where each micro-batch pays for it, they are several times
slower.

Inputs are packed: a row holds several texts, its segments, one after another.
`segment_ids` tells them apart (1, 2, ...; 0 where there is nothing), and no
token sees another segment. Each layer takes and returns (x, segment_ids,
*others), all [batch, ...], so that a pipeline may be cut between any two. The
mask [batch, 1, time, time] is made anew in each layer: it would be larger than
the activations that travel.

Sources: 'Attention Is All You Need' (arXiv 1706.03762); layer normalisation
before each sublayer, as in 'Learning Deep Transformer Models for Machine
Translation' (arXiv 1906.01787).
"""

import lingvo.compat as tf
from lingvo.core import batch_major_attention
from lingvo.core import builder_layers
from lingvo.core import layers
from lingvo.core import layers_with_attention
from lingvo.core import py_utils


class FeedForwardLayer(layers_with_attention.TransformerFeedForwardLayer):
  """Lingvo's feed-forward network, on one matrix of all tokens.

  On [batch, time, dim] Lingvo takes a weight's gradient for each example apart
  and then adds them up: a product of batch times the weight's size.
  """

  def FProp(self, theta, inputs, paddings=None):
    """[batch, time, dim] -> the same; paddings, [batch, time] or None, are 1
    where there is no token."""
    shape = py_utils.GetShape(inputs)
    tokens = tf.reshape(inputs, [-1, shape[-1]])
    if paddings is not None:
      paddings = tf.reshape(paddings, [-1])
    return tf.reshape(super().FProp(theta, tokens, paddings), shape)


class HeadsProjectionLayer(batch_major_attention.MultiHeadedProjectionLayer):
  """Lingvo's projection to or from attention heads, as one matrix product.

  Lingvo's is an einsum, which took twice as long on a CPU where it was
  measured. Quantisation is left out.
  """

  def FProp(self, theta, inputs, eqn=None):
    """[..., input_dim] -> [..., num_heads, dim_per_head], or the other way
    round with p.is_output_projection. `eqn` is lingvo 0.14's, an einsum."""
    if eqn is not None:
      return super().FProp(theta, inputs, eqn)
    p = self.params
    heads = [p.num_heads, p.dim_per_head]
    inputs = self._CastToFPropDtype(inputs)
    theta = self._CastToFPropDtype(theta)
    w = tf.reshape(theta.w, [p.input_dim, -1])
    shape = py_utils.GetShape(inputs)
    if p.is_output_projection:
      size, shape = heads[0] * heads[1], shape[:-2] + [p.input_dim]
    else:
      size, shape = p.input_dim, shape[:-1] + heads
    y = tf.matmul(
        tf.reshape(inputs, [-1, size]), w, transpose_b=p.is_output_projection)
    if p.use_bias:
      y += tf.reshape(theta.b, [-1])
    return tf.reshape(y, shape)


def BlockParams(cls, name, dim, hidden_dim, num_heads, dropout_prob=0.0):
  """Params of a Transformer layer for packed inputs.

  Args:
    cls: A class derived from batch_major_attention.TransformerLayer.
    name: The layer's name.
    dim: Of its inputs and outputs.
    hidden_dim: Of its feed-forward network.
    num_heads: Attention heads; they divide dim.
    dropout_prob: Of attention weights, hidden units and residual branches.

  Returns:
    The params.

  Raises:
    ValueError: the heads don't divide dim.
  """
  if dim % num_heads:
    raise ValueError(
        f'{name}: num_heads={num_heads} attention heads cannot share dim={dim} '
        'evenly. Choose a number that divides it.')
  p = cls.Params().Set(
      name=name, input_dim=dim, output_dim=dim, num_heads=num_heads,
      packed_input=True)
  p.tr_atten_tpl.Set(
      hidden_dim=dim, atten_dropout_prob=dropout_prob,
      residual_dropout_prob=dropout_prob)
  p.tr_atten_tpl.atten_tpl.enable_per_dim_scale = False
  # Lingvo's default takes [dim, heads, dim / heads] for a convolution's filter,
  # and so makes it several times too small.
  p.tr_atten_tpl.atten_tpl.proj_tpl = HeadsProjectionLayer.Params().Set(
      params_init=py_utils.WeightInit.Gaussian(dim**-0.5))
  p.tr_fflayer_tpl = FeedForwardLayer.Params().Set(
      hidden_dim=hidden_dim, residual_dropout_prob=dropout_prob,
      relu_dropout_prob=dropout_prob)
  for tpl in (p.tr_atten_tpl, p.tr_fflayer_tpl):
    tpl.ln_tpl = LayerNorm()
  return p


def Repeated(block, times):
  """Params of equal layers in sequence.

  A thousand layers are then one to read, copy and override. A pipeline takes
  them apart, as NAME_000, NAME_001, ... (partition.Flatten); a single one has
  that name from the start.

  Args:
    block: The layer's params.
    times: How many layers there are.
  """
  if times == 1:
    return block.Copy().Set(name=f'{block.name}_000')
  return builder_layers.SequentialLayer.Params().Set(
      name=block.name, repeat=times, sub=[block])


def LayerNorm():
  """Params of layer normalisation, in the open graph rather than a function."""
  return layers.LayerNorm.Params().Set(use_defun=False)


class TransformerLayer(batch_major_attention.TransformerLayer):
  """Self-attention and a feed-forward network.

  With p.mask_self_atten (the default here) a token sees those up to itself, as
  in a language model; without, its whole segment, as in an encoder.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.mask_self_atten = True
    return p

  def FProp(self, theta, x, segment_ids, *others):
    """Runs the layer.

    Args:
      theta: NestedMap of the weights.
      x: Floats [batch, time, dim].
      segment_ids: Ints [batch, time].
      *others: Tensors that later layers want.

    Returns:
      (y, segment_ids, *others), where y is like x.
    """
    mask = SelfAttentionMask(segment_ids, self.params.mask_self_atten)
    y, _ = super().FProp(theta, x, paddings=None, segment_mask=mask)
    y.set_shape(x.shape)
    return (y, segment_ids) + others

  @classmethod
  def FPropMeta(cls, p, x, segment_ids, *others):
    """FLOPs of the matrix products: those that the mask hides are done too."""
    _, time, dim = x
    atten_dim = p.tr_atten_tpl.hidden_dim or dim
    per_token = (
        SelfAttentionFlops(dim, time, atten_dim) +
        4 * dim * p.tr_fflayer_tpl.hidden_dim)
    return py_utils.NestedMap(
        flops=segment_ids.num_elements() * per_token,
        out_shapes=(x, segment_ids) + others)


def SelfAttentionMask(segment_ids, causal):
  """What is added to the logits of self-attention.

  Args:
    segment_ids: Ints [batch, time].
    causal: Whether a token sees only those up to itself.

  Returns:
    float32 [batch, 1, time, time]: 0 where the token of the second-last
    dimension may see that of the last, and else a very large negative number.
  """
  if causal:
    return batch_major_attention.CausalSegmentMask(segment_ids, tf.float32)
  return batch_major_attention.SegmentMask(segment_ids, segment_ids)


def SelfAttentionFlops(dim, time, atten_dim):
  """FLOPs of self-attention for one token: projections, logits, context.

  Args:
    dim: Of its inputs and outputs.
    time: How many tokens there are.
    atten_dim: Of all heads together.

  Returns:
    An int.
  """
  return 8 * dim * atten_dim + 4 * time * atten_dim
