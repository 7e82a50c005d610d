"""Greedy decoding takes the likeliest token until each target has ended."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import layers_in_sequence
from lingvo_gpipe.layers import greedy_decoding
from lingvo_gpipe.layers import seq2seq
from lingvo_gpipe.layers import translation_model

_SOS, _EOS = 1, 2


class _Countdown(seq2seq.TargetEmbedding):
  """After n comes n - 1; after sos, the source's first token. 3 ends it."""

  def Memory(self, theta, source):
    return source

  def InitStates(self, theta, batch_size, max_length):
    return py_utils.NestedMap(steps=tf.zeros([], tf.int32))

  def ExtendStep(self, theta, ids, memory, memory_segment_ids, states, time_step):
    with tf.control_dependencies([tf.debugging.assert_equal(
        states.steps, time_step)]):
      following = tf.where(tf.equal(ids, _SOS), memory[:, :1], ids - 1)
    logits = tf.one_hot(following, 20)
    return logits, py_utils.NestedMap(steps=states.steps + 1)


def _Source(ids):
  ids = tf.constant(ids, tf.int32)
  return py_utils.NestedMap(
      ids=ids, segment_ids=tf.ones_like(ids), positions=tf.zeros_like(ids))


def testEachTargetEndsByItself():
  with tf.Graph().as_default(), tf.Session() as session:
    layer = _Countdown.Params().Set(
        name='countdown', vocab_size=20, dim=2).Instantiate()
    ids, lengths = session.run(greedy_decoding.GreedyDecode(
        [(layer, layer.theta)], _Source([[5], [2], [9], [3]]), 4, _SOS, _EOS))
  np.testing.assert_array_equal(
      ids, [[5, 4, 3, 0], [0, 0, 0, 0], [9, 8, 7, 6], [3, 0, 0, 0]])
  np.testing.assert_array_equal(lengths, [3, 0, 4, 1])


def testGreedyIsTheLikeliestTokenOfTheWholeModel():
  """Against running all of the model for each token, without any state."""
  max_length, sources = 5, np.array([[4, 5, 6], [7, 2, 0]], np.int32)
  rng = np.random.RandomState(4)
  with tf.Graph().as_default(), tf.Session() as session:
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='pipeline', layers=translation_model.TranslationLayers(
            9, 1, 8, 16, 2)).Instantiate()
    # With these, tokens differ from step to step.
    theta = net.theta.Pack([
        tf.constant(rng.randn(*w.shape) * (
            1. if key.endswith(('embedding.w', 'softmax.w')) else .5), tf.float32)
        for key, w in net.theta.FlattenItems()
    ])
    layers = layers_in_sequence.LayersInSequence(net, theta)
    source = py_utils.NestedMap(
        ids=tf.constant(sources), segment_ids=tf.constant(np.sign(sources)),
        positions=tf.constant([[0, 1, 2]] * 2))
    decoded = greedy_decoding.GreedyDecode(
        layers, source, max_length, _SOS, _EOS)
    target = tf.placeholder(tf.int32, [2, None])
    args = (source.ids, source.segment_ids, source.positions, target,
            tf.ones_like(target), tf.tile(tf.range(tf.shape(target)[1])[None],
                                          [2, 1]))
    for layer, weights in layers:
      args = layer.FProp(weights, *args)
    likeliest = tf.argmax(args, -1)
    ids, lengths = session.run(decoded)
    expected = np.full([2, 1], _SOS)
    for _ in range(max_length):
      best = session.run(likeliest, {target: expected})
      expected = np.concatenate([expected, best[:, -1:]], 1)
  for i, row in enumerate(expected[:, 1:].tolist()):
    row = row[:row.index(_EOS)] if _EOS in row else row
    assert lengths[i] == len(row)
    assert ids[i].tolist() == row + [0] * (max_length - len(row))
  assert len(set(ids[1])) > 2


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
