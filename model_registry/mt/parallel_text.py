"""Parallel text files: line n of one is line n of the other, translated."""

import lingvo.compat as tf
from lingvo.core import py_utils

from model_registry.mt import pair_input
from model_registry.text import text_files

_CHUNK = 1 << 20


class ParallelTextInput(pair_input.SentencePairInput):
  """Pairs of lines of text files.

  Files are paired in the order of their names. In training, several pairs of
  files are read in turn.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('source_files', '', "The source's text files, a glob pattern or "
             'several with commas between.')
    p.Define('target_files', '', "The target's, as many.")
    return p

  def Files(self):
    """Pairs of paths: a list of (source, target).

    Raises:
      ValueError: there are none, not as many on both sides, or two of a pair
        have not as many lines.
    """
    p = self.params
    sources = text_files.Find(p.source_files)
    targets = text_files.Find(p.target_files)
    if len(sources) != len(targets):
      raise ValueError(
          f'{p.name}: source_files={p.source_files!r} matches {len(sources)} '
          f'files and target_files={p.target_files!r} {len(targets)}. There '
          'must be as many, in the same order of names.')
    pairs = list(zip(sources, targets))
    for source, target in pairs:
      counts = NumLines(source), NumLines(target)
      if counts[0] != counts[1]:
        raise ValueError(
            f'{p.name}: {source} has {counts[0]:,} lines, but {target}, its '
            f'translation, has {counts[1]:,}. Line n of one must be line n of '
            'the other.')
    return pairs

  def LoadDataset(self):
    sources, targets = zip(*self.Files())

    def _Lines(source, target):
      lines = tf.data.Dataset.zip(
          (tf.data.TextLineDataset(source), tf.data.TextLineDataset(target)))
      return lines.map(
          lambda s, t: py_utils.NestedMap(source=s, target=t))

    files = tf.data.Dataset.from_tensor_slices((list(sources), list(targets)))
    return files.interleave(
        _Lines, cycle_length=1 if self.do_eval else min(16, len(sources)),
        num_parallel_calls=tf.data.experimental.AUTOTUNE, deterministic=True)


def NumLines(path):
  """The number of lines of a file; the last one needs no line break."""
  lines, last = 0, b'\n'
  with open(path, 'rb') as f:
    while True:
      chunk = f.read(_CHUNK)
      if not chunk:
        return lines + (last != b'\n')
      lines += chunk.count(b'\n')
      last = chunk[-1:]
