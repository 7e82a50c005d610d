"""A decoder-only Transformer as a list of layers, from tokens to their loss."""

from lingvo_gpipe.layers import token_layers
from lingvo_gpipe.layers import transformer

# PipeliningLayer's shared_weights of a model whose softmax is tied.
TIED_WEIGHTS = {'softmax.w': 'embedding.w'}


def LanguageModelLayers(vocab_size, num_layers, dim, hidden_dim, num_heads,
                        dropout_prob=0.0, tied=False):
  """The layers of a language model, to be run in sequence.

  Args:
    vocab_size: The number of tokens.
    num_layers: Transformer layers.
    dim: Of the vectors between the layers.
    hidden_dim: Of the feed-forward networks.
    num_heads: Attention heads; they divide dim.
    dropout_prob: Of embeddings, attention weights, hidden units and residual
      branches.
    tied: Whether the softmax uses the embedding's weight; the PipeliningLayer
      then needs shared_weights=TIED_WEIGHTS.

  Returns:
    A list of layer params: embedding, layer, softmax. In a pipeline the second,
    transformer.Repeated, becomes layer_000, layer_001, ... The first takes
    (ids, segment_ids, positions, labels), ints [batch, time]. The last returns
    each token's loss, float32 [batch, time], or, where labels is None, the
    logits [batch, time, vocab_size].

  Raises:
    ValueError: the heads don't divide dim.
  """
  embedding = token_layers.TokenEmbedding.Params().Set(
      name='embedding', vocab_size=vocab_size, dim=dim,
      dropout_prob=dropout_prob)
  blocks = transformer.Repeated(
      transformer.BlockParams(
          transformer.TransformerLayer, 'layer', dim, hidden_dim, num_heads,
          dropout_prob), num_layers)
  softmax = token_layers.TokenSoftmax.Params().Set(
      name='softmax', input_dim=dim, vocab_size=vocab_size, tied=tied)
  return [embedding, blocks, softmax]
