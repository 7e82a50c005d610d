"""Layers to make stacks of. Each is small and does one thing."""

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import batch_major_attention
from lingvo.core import bn_layers
from lingvo.core import layers
from lingvo.core import py_utils

DROPOUT = layers.DeterministicDropoutLayer.Params()


class Dense(base_layer.BaseLayer):
  """tanh(x w + b), computed in x's dtype; passes further arguments on.

  Lingvo's own layers want p.fprop_dtype; this one takes what comes.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('dim', 4, 'Of inputs [..., dim] and outputs [..., dim].')
    p.Define('keep_prob', 1., 'Of the dropout.')
    return p

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('drop', DROPOUT.Copy().Set(keep_prob=self.params.keep_prob))

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    dim = self.params.dim
    for name, shape in (('w', [dim, dim]), ('b', [dim])):
      self.CreateVariable(
          name, py_utils.WeightParams(shape, py_utils.WeightInit.Constant(.1)))

  def FProp(self, theta, x, *others):
    y = tf.einsum('...i,ij->...j', x, tf.cast(theta.w, x.dtype))
    y = self.drop.FProp(theta.drop, tf.tanh(y + tf.cast(theta.b, x.dtype)))
    return (y,) + others if others else y


class Cast(Dense):
  """Dense whose output has another dtype."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('to', tf.float32, 'The dtype of the output.')
    return p

  def FProp(self, theta, x):
    return tf.cast(super().FProp(theta, x), self.params.to)


class Convolution(base_layer.BaseLayer):
  """A convolution, batch normalisation, ReLU on [batch, height, width, 4]."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('norm', bn_layers.BatchNormLayerNoPadding.Params(), '')
    return p

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild(
        'conv', layers.Conv2DLayerNoPadding.Params().Set(
            filter_shape=(3, 3, 4, 4), filter_stride=(1, 1)))
    self.CreateChild('norm', self.params.norm.Copy().Set(dim=4, decay=.9))

  def FProp(self, theta, x):
    x = self.norm.FProp(theta.norm, self.conv.FProp(theta.conv, x))
    return tf.nn.relu(x)


class Pool(base_layer.BaseLayer):
  """[batch, time, width, depth], paddings -> [batch, depth], its length [batch]."""

  def FProp(self, theta, x, paddings):
    lengths = tf.reduce_sum(1. - paddings, 1)
    total = tf.reduce_sum(x * (1. - paddings)[:, :, None, None], [1, 2])
    return total / lengths[:, None], tf.cast(lengths, tf.int32)


class Transformer(base_layer.BaseLayer):
  """batch_major_attention.TransformerLayer, with dropout; the ids pass through.

  (x [batch, time, dim], paddings [batch, time], segment ids [batch, time]).
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('dim', 4, 'Of the inputs and outputs.')
    p.Define('dropout_prob', .2, 'Of every dropout in the layer.')
    p.Define('causal', False, 'Whether a position sees only those before it.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    layer = batch_major_attention.TransformerLayer.CommonParams(
        p.dim, 2, mask_self_atten=p.causal, fflayer_hidden_dim=6,
        dropout_prob=p.dropout_prob)
    layer.packed_input = True
    for attention in (layer.tr_self_atten_tpl, layer.tr_atten_tpl):
      attention.dropout_tpl = DROPOUT.Copy()
      attention.atten_tpl.dropout_tpl = DROPOUT.Copy()
    layer.tr_fflayer_tpl.residual_dropout_tpl = DROPOUT.Copy()
    layer.tr_fflayer_tpl.fflayer_tpl.dropout = DROPOUT.Copy()
    self.CreateChild('layer', layer)

  def FProp(self, theta, x, paddings, ids, *others):
    mask = batch_major_attention.SegmentMask(ids, ids, dtype=x.dtype)
    x, _ = self.layer.FProp(theta.layer, x, paddings, segment_mask=mask)
    return (x, paddings, ids) + others


class Embedding(base_layer.BaseLayer):
  """ids [batch, time] -> [batch, time, dim]; passes further arguments on."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('vocabulary', 7, 'The number of ids.')
    p.Define('dim', 4, 'Of the embeddings.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    self.CreateChild(
        'emb', layers.SimpleEmbeddingLayer.Params().Set(
            vocab_size=p.vocabulary, embedding_dim=p.dim, use_matmul=False,
            fprop_mode='gather'))

  def FProp(self, theta, ids, *others):
    return (self.emb.EmbLookup(theta.emb, ids),) + others


class Softmax(base_layer.BaseLayer):
  """x [batch, time, dim], ..., labels [batch, time] -> logits, losses, argmax."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('vocabulary', 7, 'The number of labels.')
    p.Define('dim', 4, 'Of the inputs.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    self.CreateChild(
        'softmax', layers.SimpleFullSoftmax.Params().Set(
            num_classes=p.vocabulary, input_dim=p.dim))

  def FProp(self, theta, x, *others):
    shape = py_utils.GetShape(x)
    logits = self.softmax.Logits(theta.softmax, tf.reshape(x, [-1, shape[-1]]))
    logits = tf.reshape(logits, shape[:-1] + [self.params.vocabulary])
    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=others[-1], logits=logits)
    return logits, entropy, tf.argmax(logits, -1, output_type=tf.int32)


class Integers(Dense):
  """(x, int32 [batch], int64 [batch, 1], bool [batch]): uses and changes all."""

  def FProp(self, theta, x, small, large, flag):
    x = super().FProp(theta, x)
    x += tf.cast(small, x.dtype)[:, None] + tf.cast(large % 2, x.dtype)
    x = tf.where(flag, x, -x)
    return x, small + 1, large * 3, tf.logical_not(flag)


class Optional(Dense):
  """(x, y, z, ignored), of which any but x may be None; has an unused weight."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('drop_z', False, 'Whether to give None in place of z.')
    p.Define('fill_y', False, 'Whether to give a tensor in place of y.')
    return p

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    self.CreateVariable('unused', py_utils.WeightParams([2]))

  def FProp(self, theta, x, y, z, ignored):
    p = self.params
    out = super().FProp(theta, x)
    out = out if y is None else out + y
    out = out if z is None else out * z
    # `ignored` goes no further than here.
    return out, out + x if p.fill_y else y, None if p.drop_z else z, None


class Nested(Dense):
  """A NestedMap(x, more=NestedMap(y, ids), pair=[a, None]) in and out."""

  def FProp(self, theta, nmap):
    x = super().FProp(theta, nmap.x)
    y = nmap.more.y + tf.reduce_sum(x, -1)
    a = nmap.pair[0] * tf.cast(nmap.more.ids, tf.float32)[:, None]
    return py_utils.NestedMap(
        x=x + a, more=py_utils.NestedMap(y=y, ids=nmap.more.ids + 1),
        pair=[a + x, nmap.pair[1]])


class Fan(Dense):
  """x [batch, dim] -> outputs of ranks 1 to 4, of different dtypes."""

  def FProp(self, theta, x):
    y = super().FProp(theta, x)
    return (
        tf.reduce_sum(y, -1),  # [batch]
        y,  # [batch, dim]
        tf.cast(y[:, :, None] * x[:, None, :], tf.float16),  # [batch, dim, dim]
        tf.cast(tf.sign(y), tf.int32)[:, None, :, None],  # [batch, 1, dim, 1]
        y > 0,
        tf.cast(y, tf.float64)[:, ::2],
        tf.argmax(y, -1))


class Combine(Dense):
  """(x, skipped) -> Dense(x) * skipped."""

  def FProp(self, theta, x, skipped):
    return super().FProp(theta, x) * skipped


class _Shared(base_layer.BaseLayer):
  """Has a SingleShardSharedEmbeddingSoftmax."""

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild(
        'shared', layers.SingleShardSharedEmbeddingSoftmax.Params().Set(
            vocab_size=7, num_classes=7, embedding_dim=4, input_dim=4))


class SharedEmbedding(_Shared):
  """ids [batch, time] -> [batch, time, dim]."""

  def FProp(self, theta, ids):
    return self.shared.EmbLookup(theta.shared, ids)


class SharedSoftmax(_Shared):
  """[batch, time, dim] -> logits [batch, time, vocabulary]."""

  def FProp(self, theta, x):
    return self.shared.Logits(theta.shared, [x])
