"""Texts of any length make rows of one length, and nothing is lost or added."""

import sys

import lingvo.compat as tf
import numpy as np
import pytest

from model_registry.text import packing
from model_registry.text import vocabulary

_WORDS = vocabulary.ByteVocabulary()


def _Columns(text, end_size=0):
  return packing.TokenColumns(_WORDS, text, end_size)


def _Pack(texts, length, fill_last=True):
  """The rows of texts as one batch, of numpy arrays."""
  with tf.Graph().as_default():
    dataset = tf.data.Dataset.from_generator(
        lambda: map(_Columns, texts), tf.int32, [None, packing.NUM_COLUMNS])
    rows = packing.Rows(dataset, length, fill_last)
    batches = tf.data.make_one_shot_iterator(rows.batch(1000)).get_next()
    with tf.Session() as session:
      return session.run(packing.Batch(batches))


def testColumns():
  ids = _WORDS.Encode(b'abc')
  columns = _Columns(b'abc', end_size=1)
  assert columns.dtype == np.int32
  np.testing.assert_array_equal(columns, np.stack(
      [[_WORDS.sos, *ids], [*ids, _WORDS.eos], [0, 1, 2, 3], [1, 1, 1, 1]], -1))
  np.testing.assert_array_equal(
      _Columns(b''), [[_WORDS.sos, _WORDS.eos, 0, 0]])


def testWhatTheVocabularyDropsCountsAtTheEnd():

  class _Stripping(vocabulary.ByteVocabulary):

    def Encode(self, text):
      return super().Encode(text.strip())

  for text, sizes in ((b'  ', [3]), (b' a b ', [1, 1, 1, 3])):
    columns = packing.TokenColumns(_Stripping(), text, end_size=1)
    np.testing.assert_array_equal(columns[:, -1], sizes)


@pytest.mark.parametrize('length', [1, 4, 7, 100])
def testRows(length):
  texts = [b'a', b'', b'a long text that fills rows', b'bcd', b'xyz']
  batch = _Pack(texts, length)
  real = batch.weights > 0
  total = sum(len(t) + 1 for t in texts)
  assert batch.ids.shape == (-(-total // length), length)
  # Everything is there, in order; only the last row may have room left.
  assert real.sum() == total and real.ravel()[:total].all()
  assert batch.sizes.sum() == sum(map(len, texts))
  labels = batch.labels[real]
  ends = np.flatnonzero(labels == _WORDS.eos)
  assert [_WORDS.Decode(t) for t in np.split(labels, ends + 1)[:-1]] == texts
  # Each token is read after it was to be said, or after a text's begin.
  ids = batch.ids[real]
  assert ids[0] == _WORDS.sos
  np.testing.assert_array_equal(
      ids[1:], np.where(labels == _WORDS.eos, _WORDS.sos, labels)[:-1])
  for name in ('ids', 'labels', 'segment_ids', 'positions', 'sizes'):
    assert (batch[name][~real] == 0).all(), name


def testSegmentsAndPositions():
  batch = _Pack([b'abcde', b'', b'f', b'gh'], 4)
  np.testing.assert_array_equal(
      batch.segment_ids, [[1, 1, 1, 1], [1, 1, 2, 3], [1, 2, 2, 2]])
  np.testing.assert_array_equal(
      batch.positions, [[0, 1, 2, 3], [0, 1, 0, 0], [0, 0, 1, 2]])
  batch = _Pack([b'ab'], 5)
  np.testing.assert_array_equal(batch.segment_ids, [[1, 1, 1, 0, 0]])


def testInTrainingNoRowIsFilledUp():
  batch = _Pack([b'abc', b'def'], 5, fill_last=False)
  assert batch.ids.shape == (1, 5) and batch.weights.all()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
