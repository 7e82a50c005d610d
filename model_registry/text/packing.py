"""Texts of any length, packed into rows of one length."""

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np

# The columns of a row: see TokenColumns.
_ID, _LABEL, _POSITION, _SIZE = range(4)
NUM_COLUMNS = 4


def TokenColumns(vocabulary, text, end_size):
  """What a language model reads, what it is to say, and what that counts.

  Args:
    vocabulary: A vocabulary (vocabulary.py).
    text: bytes.
    end_size: How many bytes the end of the text stands for.

  Returns:
    int32 [n + 1, 4] for a text of n tokens. The columns: the token before (at
    first sos), the token itself (at last eos), its position from 0, and how
    many bytes of the text it stands for. What the tokens don't add up to, where
    the vocabulary drops or adds a space for example, counts at the end.
  """
  ids = vocabulary.Encode(text)
  columns = np.empty([len(ids) + 1, NUM_COLUMNS], np.int32)
  columns[0, _ID] = vocabulary.sos
  columns[1:, _ID] = columns[:-1, _LABEL] = ids
  columns[-1, _LABEL] = vocabulary.eos
  columns[:, _POSITION] = np.arange(len(ids) + 1)
  columns[:-1, _SIZE] = vocabulary.sizes[ids]
  columns[-1, _SIZE] = len(text) + end_size - columns[:-1, _SIZE].sum()
  return columns


def Rows(dataset, length, fill_last):
  """Cuts texts that follow each other into rows of one length.

  No place is wasted: a text that doesn't fit in the rest of a row goes on in
  the next, where it doesn't see what came before.

  Args:
    dataset: tf.data.Dataset of int32 [n, 4], each a text (TokenColumns).
    length: Of the rows.
    fill_last: Whether the tokens at the end that make no full row are given in
      a row that is filled up (with position -1), rather than dropped.

  Returns:
    tf.data.Dataset of int32 [length, 4].
  """
  if fill_last:
    end = tf.fill([length - 1, NUM_COLUMNS], -1)
    dataset = dataset.concatenate(tf.data.Dataset.from_tensors(end))

  def _Cut(rest, text):
    tokens = tf.concat([rest, text], 0)
    end = tf.shape(tokens)[0] // length * length
    return tokens[end:], tf.reshape(tokens[:end], [-1, length, NUM_COLUMNS])

  nothing = tf.zeros([0, NUM_COLUMNS], tf.int32)
  return dataset.scan(nothing, _Cut).unbatch()


def Batch(rows):
  """What a model takes.

  Args:
    rows: int32 [batch, length, 4].

  Returns:
    A NestedMap of tensors [batch, length]:
      ids: int32, the tokens to read.
      labels: int32, the token that comes after each.
      segment_ids: int32, which text of the row a token is of, 1, 2, ...; 0
        where there is none.
      positions: int32, the token's place in its segment.
      weights: float32, 1 for a token, 0 where there is none.
      sizes: float32, how many bytes of text the label stands for.
  """
  position = rows[:, :, _POSITION]
  real = tf.cast(position >= 0, tf.int32)
  starts = tf.cast(tf.equal(position, 0), tf.int32)
  # A row that begins within a text has it as its segment 1.
  segment_ids = tf.cumsum(starts, axis=1) + 1 - starts[:, :1]
  first = position[:, :1] * tf.cast(tf.equal(segment_ids, 1), tf.int32)
  return py_utils.NestedMap(
      ids=rows[:, :, _ID] * real,
      labels=rows[:, :, _LABEL] * real,
      segment_ids=segment_ids * real,
      positions=(position - first) * real,
      weights=tf.cast(real, tf.float32),
      sizes=tf.cast(rows[:, :, _SIZE] * real, tf.float32))
