"""Greedy decoding: the likeliest token, one after another."""

import lingvo.compat as tf

from lingvo_gpipe.layers import seq2seq


def GreedyDecode(layers, source, max_length, bos_id, eos_id):
  """Decodes with the layers of an encoder-decoder, on one device.

  The encoder runs once. The decoder runs on one token at a time, keeps the keys
  and values of those before, and stops when every target has ended.

  Args:
    layers: A list of (layer, NestedMap of its weights), those of seq2seq.py
      (layers_in_sequence.LayersInSequence).
    source: NestedMap of ints [batch, source_time]: ids, segment_ids (0 for
      padding, else 1) and positions, each token's place.
    max_length: An int. A target without an end stops there.
    bos_id: The id that targets begin with.
    eos_id: The id that ends a target.

  Returns:
    (ids, lengths): int32 [batch, max_length], 0 from the end on; and int32
    [batch], the number of tokens, in which eos_id isn't counted.
  """
  split = [isinstance(layer, seq2seq.TargetEmbedding)
           for layer, _ in layers].index(True)
  decoder = layers[split:]
  segment_ids = source.segment_ids
  memory = _Memory(layers[:split + 1], source)
  batch = tf.shape(segment_ids)[0]

  def Step(t, ids, lengths, ended, tokens, states):
    x, new_states = ids, []
    for (layer, theta), state in zip(decoder, states):
      x, state = layer.ExtendStep(theta, x, memory, segment_ids, state, t)
      new_states.append(state)
    ids = tf.argmax(x, -1, output_type=tf.int32)
    ended = tf.logical_or(ended, tf.equal(ids, eos_id))
    ids = tf.where(ended, tf.zeros_like(ids), ids)
    tokens = tf.concat([tokens[:, :t], ids, tokens[:, t + 1:]], 1)
    tokens.set_shape([None, max_length])
    lengths += tf.cast(tf.logical_not(ended), tf.int32)
    return t + 1, ids, lengths, ended, tokens, new_states

  column = tf.zeros([batch, 1], tf.int32)
  states = [
      layer.InitStates(theta, batch, max_length) for layer, theta in decoder
  ]
  _, _, lengths, _, tokens, _ = tf.while_loop(
      lambda t, ids, lengths, ended, *_: tf.logical_and(
          t < max_length, tf.logical_not(tf.reduce_all(ended))),
      Step, (0, column + bos_id, column, tf.cast(column, tf.bool),
             tf.zeros([batch, max_length], tf.int32), states))
  return tokens, lengths[:, 0]


def _Memory(layers, source):
  """What the decoder attends to: floats [batch, source_time, dim].

  Args:
    layers: The layers up to target_embedding, as in GreedyDecode.
    source: As in GreedyDecode.
  """
  x = (source.ids, source.segment_ids, source.positions)
  for layer, theta in layers[:-1]:
    x = layer.FProp(theta, *x)
  embedding, theta = layers[-1]
  return embedding.Memory(theta, x[0])
