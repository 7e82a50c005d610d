"""Batches of packed text for language models."""

import lingvo.compat as tf
from lingvo.core import py_utils

from model_registry import seeded_input
from model_registry.text import packing
from model_registry.text import text_files
from model_registry.text import vocabulary

_UNITS = ('file', 'line')
_SPLITS = ('train', 'test')


class PackedTextInput(seeded_input.SeededInput):
  """Text files, packed into rows of p.sequence_length tokens.

  In training: files shuffled, repeated, packed, rows shuffled, for ever. In
  evaluation: everything once and in order; the last row and batch are filled
  up. A batch is the NestedMap of packing.Batch.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('split', 'train', "'train' or 'test'.")
    p.Define('train_files', '',
             'The text files to train on, a glob pattern or several with commas '
             "between. Empty: the source files of Python's standard library.")
    p.Define('test_files', '', 'The text files to test with. Empty: one in 20 '
             'of those to train on, which are left out there.')
    p.Define('text_unit', 'file', "What is one text: a 'file' or a 'line'. "
             'Texts are packed together, and do not see each other.')
    vocabulary.Define(p)
    p.Define('sequence_length', 0, 'Tokens in a row.')
    p.Define('shuffle_buffer_size', 10000,
             'The number of rows to shuffle among, in training.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    for name, values in (('text_unit', _UNITS), ('split', _SPLITS)):
      if p.Get(name) not in values:
        raise ValueError(
            f'{p.name}: {name} is {p.Get(name)!r}; it must be one of {values}.')

  def Files(self):
    """The paths of the text files, in the order of evaluation.

    Raises:
      ValueError: there are none.
    """
    p = self.params
    if p.test_files and p.split == 'test':
      return text_files.Find(p.test_files)
    paths = (text_files.Find(p.train_files) if p.train_files
             else text_files.PythonSources())
    return paths if p.test_files else text_files.Split(paths, p.split)

  def BuildDataset(self):
    p = self.params
    tokens = self._Texts(self.Files()).map(
        self._Encoder(), num_parallel_calls=tf.data.experimental.AUTOTUNE,
        deterministic=True)
    rows = packing.Rows(tokens, p.sequence_length, fill_last=self.do_eval)
    if not self.do_eval:
      index, count = self.Share()
      rows = rows.shard(count, index).shuffle(
          p.shuffle_buffer_size, seed=p.random_seed)
    batches = rows.batch(
        self.InfeedBatchSize(), drop_remainder=not self.do_eval)
    return batches.map(
        self._FinishBatch,
        num_parallel_calls=tf.data.experimental.AUTOTUNE,
        deterministic=True).prefetch(tf.data.experimental.AUTOTUNE)

  def _Texts(self, files):
    """tf.data.Dataset of texts, scalar strings; in training, for ever."""
    p = self.params
    dataset = tf.data.Dataset.from_tensor_slices(files)
    if not self.do_eval:
      dataset = dataset.shuffle(len(files), seed=p.random_seed).repeat()
    if p.text_unit == 'file':
      return dataset.map(
          tf.io.read_file, num_parallel_calls=tf.data.experimental.AUTOTUNE,
          deterministic=True)
    return dataset.interleave(
        tf.data.TextLineDataset,
        cycle_length=1 if self.do_eval else min(16, len(files)),
        num_parallel_calls=tf.data.experimental.AUTOTUNE,
        deterministic=True)

  def _Encoder(self):
    """A function: text, a scalar string -> int32 [n, 4], packing.TokenColumns."""
    p = self.params
    words = vocabulary.OfInput(p)
    # The end of a line is a byte of the file, too.
    end_size = int(p.text_unit == 'line')

    def _Encode(text):
      columns = tf.numpy_function(
          lambda t: packing.TokenColumns(words, t, end_size), [text], tf.int32)
      columns.set_shape([None, packing.NUM_COLUMNS])
      return columns

    return _Encode

  def _FinishBatch(self, rows):
    """Fills a batch up, and makes of it what the model takes."""
    shape = [self.InfeedBatchSize(), self.params.sequence_length,
             packing.NUM_COLUMNS]
    return packing.Batch(py_utils.PadOrTrimTo(rows, shape, pad_val=-1))
