"""Pairs of sentences on tf.data, as padded batches of tokens.

A data set is a subclass of SentencePairInput with a LoadDataset.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from model_registry import seeded_input
from model_registry.text import vocabulary

# What batches are padded with before they are finished: no token.
_NOTHING = -1


class SentencePairInput(seeded_input.SeededInput):
  """Base of the data sets of pairs of sentences.

  In training: shuffled, repeated, batched by length, for ever; pairs that are
  longer than the longest bucket are left out. In evaluation: every pair once,
  cut to the longest bucket, each bucket's pairs in order, and batches that
  aren't full filled up with empty pairs. A batch is a NestedMap:

    src.ids, tgt.ids:                  the target's begin with sos
    tgt.labels:                        tgt.ids, one to the left
    src.segment_ids, tgt.segment_ids:  1 for a token, 0 for padding
    src.positions, tgt.positions:      a token's place, from 0
    tgt.weights:                       float32, 1 for a token, 0 for padding

  all [batch, time], int32 where nothing else is said; time is that of the
  bucket. src.ids and tgt.labels end with eos.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    vocabulary.Define(p)  # Of both languages.
    p.Define(
        'bucket_upper_bound', [64], 'The lengths in tokens that sentences are '
        'padded to, ascending, the end included. A pair goes into the first '
        'bucket that holds both of its sides.')
    p.Define('bucket_batch_limit', [],
             'The batch size of each bucket. Empty: batch_size for all.')
    p.Define('shuffle_buffer_size', 10000,
             'The number of pairs to shuffle among, in training.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    self._vocabulary = None
    bounds, limits = list(p.bucket_upper_bound), p.bucket_batch_limit
    if not bounds or bounds != sorted(set(bounds)) or bounds[0] < 1:
      raise ValueError(
          f'{p.name}: bucket_upper_bound is {bounds}; it must be a list of '
          'lengths, each larger than the one before.')
    if limits and len(limits) != len(bounds):
      raise ValueError(
          f'{p.name}: bucket_batch_limit has {len(limits)} batch sizes for the '
          f'{len(bounds)} lengths of bucket_upper_bound. Give one for each, or '
          'none for batch_size everywhere.')

  def LoadDataset(self):
    """The pairs, in order.

    Returns:
      A tf.data.Dataset of NestedMaps: `source` and `target`, scalar strings.
    """
    raise NotImplementedError(type(self))

  def Vocabulary(self):
    """The vocabulary of both sides (model_registry/text/vocabulary.py).

    Raises:
      ValueError: it isn't there, or is larger than p.vocab_size.
    """
    if not self._vocabulary:
      self._vocabulary = vocabulary.OfInput(self.params)
    return self._vocabulary

  def BuildDataset(self):
    """Returns the tf.data.Dataset of batches."""
    p = self.params
    words = self.Vocabulary()
    dataset = self.LoadDataset()
    if not self.do_eval:
      index, count = self.Share()
      dataset = dataset.shard(count, index)
    dataset = dataset.map(
        lambda pair: pair.Transform(lambda x: _Encode(words, x)),
        num_parallel_calls=tf.data.experimental.AUTOTUNE, deterministic=True)
    longest = p.bucket_upper_bound[-1] - 1  # Without the end.
    if self.do_eval:
      dataset = dataset.map(lambda pair: pair.Transform(lambda x: x[:longest]))
    else:
      dataset = dataset.filter(lambda pair: _Length(pair) <= longest)
      dataset = dataset.shuffle(p.shuffle_buffer_size, seed=p.random_seed)
      dataset = dataset.repeat()
    dataset = dataset.map(
        lambda pair: pair.Transform(lambda x: tf.concat([x, [words.eos]], 0)))
    return self._Batch(dataset).map(
        lambda batch: self._FinishBatch(batch, words.sos),
        num_parallel_calls=tf.data.experimental.AUTOTUNE,
        deterministic=True).prefetch(tf.data.experimental.AUTOTUNE)

  def _BatchSizes(self):
    """The batch size of each bucket, a list of ints."""
    p = self.params
    # The cluster may want the batches of several splits at once.
    factor = self.InfeedBatchSize() // p.batch_size
    limits = p.bucket_batch_limit or [p.batch_size] * len(p.bucket_upper_bound)
    return [factor * limit for limit in limits]

  def _Batch(self, dataset):
    """Batches of pairs of one bucket: NestedMaps of int32 [batch, time]."""
    # There, bounds are exclusive, and so are the lengths that it pads to. Its
    # last bucket is for what is longer than all bounds: nothing.
    return dataset.bucket_by_sequence_length(
        _Length, [b + 1 for b in self.params.bucket_upper_bound],
        self._BatchSizes() + [1],
        padded_shapes=py_utils.NestedMap(source=[None], target=[None]),
        padding_values=py_utils.NestedMap(source=_NOTHING, target=_NOTHING),
        pad_to_bucket_boundary=True, drop_remainder=not self.do_eval)

  def _FinishBatch(self, batch, sos):
    """Fills a batch up, and makes of it what the model takes."""
    sizes, bounds = self._BatchSizes(), self.params.bucket_upper_bound
    time = tf.shape(batch.source)[1]
    size = tf.gather(sizes, tf.argmax(tf.equal(bounds, time)))
    # As much of the shape as there is to know.
    size = sizes[0] if len(set(sizes)) == 1 else size
    time = bounds[0] if len(bounds) == 1 else time

    def _Side(x):
      x = py_utils.PadOrTrimTo(x, [size, time], pad_val=_NOTHING)
      real = tf.cast(x >= 0, tf.int32)
      return py_utils.NestedMap(
          ids=x * real, segment_ids=real, positions=tf.range(time) * real)

    tgt = _Side(batch.target)
    tgt.labels = tgt.ids
    first = tf.fill([size, 1], sos)
    tgt.ids = tf.concat([first, tgt.ids[:, :-1]], 1) * tgt.segment_ids
    tgt.weights = tf.cast(tgt.segment_ids, tf.float32)
    return py_utils.NestedMap(src=_Side(batch.source), tgt=tgt)


def _Encode(words, text):
  """The tokens, int32 [n], of a scalar string."""
  ids = tf.numpy_function(words.Encode, [text], tf.int32)
  ids.set_shape([None])
  return ids


def _Length(pair):
  """The length of the longer side, int32 []."""
  return tf.maximum(tf.shape(pair.source)[0], tf.shape(pair.target)[0])
