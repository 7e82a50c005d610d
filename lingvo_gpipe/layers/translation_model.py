"""An encoder-decoder Transformer as a list of layers."""

from lingvo.core import py_utils

from lingvo_gpipe.layers import seq2seq
from lingvo_gpipe.layers import token_layers
from lingvo_gpipe.layers import transformer

# PipeliningLayer's shared_weights: one embedding for source, target and softmax;
TIED_WEIGHTS = {
    'target_embedding.w': 'source_embedding.w',
    'softmax.w': 'source_embedding.w',
}
# or one for the source, and one for target and softmax.
TARGET_TIED_WEIGHTS = {'softmax.w': 'target_embedding.w'}


def TranslationLayers(vocab_size, num_layers, dim, hidden_dim, num_heads,
                      atten_dim=None, dropout_prob=0.0, shared_weights=None,
                      label_smoothing=0.0, logits_abs_max=0.0,
                      scale_feed_forward=False):
  """The layers of a translation model, to be run in sequence.

  Args:
    vocab_size: The number of tokens, of both languages.
    num_layers: Layers of the encoder, and as many of the decoder.
    dim: Of the vectors between the layers.
    hidden_dim: Of the feed-forward networks.
    num_heads: Attention heads.
    atten_dim: The size of all heads together; dim by default.
    dropout_prob: Of embeddings, attention weights, hidden units and residual
      branches.
    shared_weights: The PipeliningLayer's, such as TIED_WEIGHTS; a layer creates
      no weight that is in there. None: each has its own.
    label_smoothing: In training, the share of the target probability that is
      spread evenly over all tokens.
    logits_abs_max: If not 0, what logits are clipped to.
    scale_feed_forward: Whether the feed-forward networks start from weights
      divided by the number of layers (the paper's section 5, for deep models).

  Returns:
    A list of layer params: source_embedding, encoder, target_embedding,
    decoder, softmax (seq2seq.py). In a pipeline encoder and decoder,
    transformer.Repeated, become encoder_000, ..., and decoder_000, ... The
    first takes the source's ids, segment ids and positions, and the target's
    ids, segment ids, positions and labels, all ints [batch, time].

  Raises:
    ValueError: the heads don't divide dim or atten_dim.
  """

  atten_dim = atten_dim or dim
  shared_weights = shared_weights or {}
  if atten_dim % num_heads:
    raise ValueError(
        f'num_heads={num_heads} attention heads cannot share atten_dim='
        f'{atten_dim} evenly. Choose a number that divides it.')

  def Blocks(cls, name, **kwargs):
    p = transformer.BlockParams(
        cls, name, dim, hidden_dim, num_heads, dropout_prob).Set(**kwargs)
    p.tr_atten_tpl.hidden_dim = atten_dim
    if scale_feed_forward:
      p.tr_fflayer_tpl.params_init = py_utils.WeightInit.Xavier(1.0 / num_layers)
    return transformer.Repeated(p, num_layers)

  embedding = dict(vocab_size=vocab_size, dim=dim, dropout_prob=dropout_prob)
  return [
      token_layers.TokenEmbedding.Params().Set(
          name='source_embedding', **embedding),
      Blocks(transformer.TransformerLayer, 'encoder', mask_self_atten=False),
      seq2seq.TargetEmbedding.Params().Set(
          name='target_embedding', tied='target_embedding.w' in shared_weights,
          **embedding),
      Blocks(seq2seq.DecoderLayer, 'decoder'),
      seq2seq.TargetSoftmax.Params().Set(
          name='softmax', input_dim=dim, vocab_size=vocab_size,
          tied='softmax.w' in shared_weights,
          label_smoothing=label_smoothing, logits_abs_max=logits_abs_max),
  ]
