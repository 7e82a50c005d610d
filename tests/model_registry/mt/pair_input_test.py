"""Batches of pairs: what is in them, which pairs, in which order."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
import pytest

from model_registry.mt import pair_input
from tests.model_registry.image import input_stream

_PAIRS = [(b'ab', b'c'), (b'', b'xyz'), (b'abcdef', b'g'), (b'a', b'bcdefg'),
          (b'q', b'r')]


class _FewPairs(pair_input.SentencePairInput):

  def LoadDataset(self):
    sources, targets = zip(*_PAIRS)
    return tf.data.Dataset.from_tensor_slices(
        py_utils.NestedMap(source=list(sources), target=list(targets)))


def _Params(**kwargs):
  return _FewPairs.Params().Set(name='input', batch_size=2, **kwargs)


def _Ids(text):
  return [3 + b for b in text]


def _Texts(batch):
  """The pairs of a batch, as sorted (source, target)."""
  words = pair_input.vocabulary.ByteVocabulary()
  rows = zip(batch.src.ids, batch.tgt.labels, batch.tgt.weights)
  return [(words.Decode(s), words.Decode(t)) for s, t, w in rows if w[0]]


def testABatch():
  with input_stream.Open(
      _Params(bucket_upper_bound=[8]), do_eval=True) as stream:
    first, *_, last = stream.Rest()
  np.testing.assert_array_equal(first.src.ids[0], _Ids(b'ab') + [2] + [0] * 5)
  np.testing.assert_array_equal(first.src.segment_ids.sum(1), [3, 1])
  np.testing.assert_array_equal(first.src.positions[0], [0, 1, 2] + [0] * 5)
  np.testing.assert_array_equal(
      first.tgt.ids, [[1] + _Ids(b'c') + [0] * 6,
                      [1] + _Ids(b'xyz') + [0] * 4])
  np.testing.assert_array_equal(
      first.tgt.labels, [_Ids(b'c') + [2] + [0] * 6,
                         _Ids(b'xyz') + [2] + [0] * 4])
  np.testing.assert_array_equal(first.tgt.weights.sum(1), [2, 4])
  assert first.tgt.weights.dtype == np.float32
  # The last one is filled up, with nothing at all.
  assert _Texts(last) == [(b'q', b'r')]
  for value in last.src.Flatten() + last.tgt.Flatten():
    assert value.shape == (2, 8) and not value[1].any()


def testBucketsHoldPairsOfTheirLengths():
  params = _Params(bucket_upper_bound=[3, 6], bucket_batch_limit=[2, 1])
  with input_stream.Open(params, do_eval=True) as stream:
    batches = stream.Rest()
  found = [(b.src.ids.shape, _Texts(b)) for b in batches]
  assert sorted(found) == [
      ((1, 6), [(b'', b'xyz')]),
      # In evaluation, what is too long is cut.
      ((1, 6), [(b'a', b'bcdef')]),
      ((1, 6), [(b'abcde', b'g')]),
      ((2, 3), [(b'ab', b'c'), (b'q', b'r')]),
  ]


def testTrainingShufflesRepeatsAndLeavesOutWhatIsTooLong():
  params = _Params(bucket_upper_bound=[5], random_seed=3)
  with input_stream.Open(params) as stream:
    batches = stream.Next(12)
  texts = sum(map(_Texts, batches), [])
  short = [_PAIRS[i] for i in (0, 1, 4)]
  epochs = [texts[i:i + 3] for i in range(0, 24, 3)]
  assert all(sorted(epoch) == sorted(short) for epoch in epochs)
  assert len(set(map(tuple, epochs))) > 1
  with input_stream.Open(params, global_step=5) as stream:
    resumed = stream.Next(7)
  assert list(map(_Texts, resumed)) == list(map(_Texts, batches[5:]))


@pytest.mark.parametrize('params, message', [
    (dict(bucket_upper_bound=[8, 4]), r'bucket_upper_bound is \[8, 4\]'),
    (dict(bucket_upper_bound=[]), r'bucket_upper_bound is \[\]'),
    (dict(bucket_batch_limit=[1, 2]), '2 batch sizes for the 1 lengths'),
])
def testBucketsThatContradictThemselves(params, message):
  with pytest.raises(ValueError, match=message):
    _Params(**params).Instantiate()


def testVocabularyThatIsTooLarge():
  params = _Params(vocab_size=100)
  with pytest.raises(ValueError, match="'bytes' has 259 tokens.*vocab_size=100"):
    params.Instantiate().Vocabulary()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
