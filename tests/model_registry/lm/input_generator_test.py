"""Batches of packed text: in the right order, and nothing twice or missing."""

import os
import subprocess
import sys

import lingvo.compat as tf
import numpy as np
import pytest

from model_registry.lm import input_generator
from model_registry.text import vocabulary
from tests.model_registry.image import input_stream

_LENGTH, _BATCH = 16, 3
_WORDS = vocabulary.ByteVocabulary()


@pytest.fixture(name='files', scope='module')
def _Files(tmp_path_factory):
  """Five files of 100 numbered lines each; returns their pattern."""
  folder = tmp_path_factory.mktemp('texts')
  for i in range(5):
    (folder / f'{i}.txt').write_text(
        ''.join(f'line {j} of file {i}\n' for j in range(100)))
  return str(folder / '*.txt')


def _Params(files, **kwargs):
  return input_generator.PackedTextInput.Params().Set(
      name='input', train_files=files, test_files=files, sequence_length=_LENGTH,
      batch_size=_BATCH, shuffle_buffer_size=20, random_seed=7, **kwargs)


def _Batches(params, n, **kwargs):
  with input_stream.Open(params, **kwargs) as stream:
    return stream.Next(n)


def _Rows(batches):
  """The texts of the rows."""
  return [_WORDS.Decode(row) for b in batches for row in b.labels]


def _AssertSame(batches, expected):
  assert len(batches) == len(expected)
  for batch, other in zip(batches, expected):
    for value, wanted in zip(batch.Flatten(), other.Flatten()):
      np.testing.assert_array_equal(value, wanted)


@pytest.mark.parametrize('unit', ['file', 'line'])
def testEvaluationSeesEveryByteOnceAndInOrder(files, unit):
  text = ''.join(f'line {j} of file {i}\n'
                 for i in range(5) for j in range(100)).encode()
  with input_stream.Open(_Params(files, text_unit=unit), do_eval=True) as stream:
    for _ in range(2):
      batches = stream.Rest()
      for b in batches:
        assert all(x.shape == (_BATCH, _LENGTH) for x in b.Flatten())
      found = b''.join(_Rows(batches))
      assert found == (text if unit == 'file' else text.replace(b'\n', b''))
      # The end of a line stands for its byte.
      assert sum(b.sizes.sum() for b in batches) == len(text)
      num_texts = 5 if unit == 'file' else 500
      assert sum(b.weights.sum() for b in batches) == len(found) + num_texts
      assert sum((b.labels == _WORDS.eos).sum() for b in batches) == num_texts
      stream.Reset()


def testTrainingSeesEveryByteInEachEpoch(files):
  params = _Params(files)
  rows_of_an_epoch = sum(
      len(f'line {j} of file {i}\n') for i in range(5) for j in range(100))
  rows_of_an_epoch = (rows_of_an_epoch + 5) // _LENGTH
  batches = _Batches(params, 3 * rows_of_an_epoch // _BATCH)
  assert all(b.weights.all() for b in batches)  # No row is filled up.
  rows = _Rows(batches)
  text = b''.join(rows)
  for i in range(5):
    # Rows are shuffled, and cut differently in each epoch, so not all lines
    # are whole in them.
    found = text.count(b'of file %d\n' % i)
    assert 100 < found < 300
  first, second = rows[:rows_of_an_epoch], rows[rows_of_an_epoch:]
  assert first != second[:rows_of_an_epoch]


def testOrderDependsOnTheSeedAlone(files):
  expected = _Batches(_Params(files, text_unit='line'), 8)
  _AssertSame(_Batches(_Params(files, text_unit='line'), 8), expected)
  other = _Batches(_Params(files, text_unit='line').Set(random_seed=8), 8)
  assert _Rows(other) != _Rows(expected)


def testResumesWhereTheGlobalStepIs(files):
  expected = _Batches(_Params(files), 9)
  _AssertSame(_Batches(_Params(files), 4, global_step=5), expected[5:])
  _AssertSame(
      _Batches(_Params(files, skip_to_global_step=False), 1, global_step=5),
      expected[:1])


def testTrainersShareTheRows(files):
  params = _Params(files).Set(shuffle_buffer_size=1)
  rows = _Rows(_Batches(params, 4))
  for i in range(2):
    assert _Rows(_Batches(params, 2, trainer=(i, 2))) == rows[i::2]


def testSentencePiece(files, tmp_path):
  # In a process of its own: its trainer and TensorFlow don't go together.
  options = dict(
      input=files.replace('*', '0'), model_prefix=str(tmp_path / 'small'),
      vocab_size=40, hard_vocab_limit=False, minloglevel=2)
  subprocess.run(
      [sys.executable, '-c', 'import sentencepiece; sentencepiece.'
       f'SentencePieceTrainer.train(**{options!r})'], check=True)
  path = str(tmp_path / 'small.model')
  params = _Params(files, text_unit='line', vocabulary=path, vocab_size=40)
  with input_stream.Open(params, do_eval=True) as stream:
    batches = stream.Rest()
  words = vocabulary.Vocabulary(path)
  labels = np.concatenate([b.labels[b.weights > 0] for b in batches])
  ends = np.flatnonzero(labels == words.eos)
  texts = [words.Decode(t) for t in np.split(labels, ends + 1)[:-1]]
  assert texts == [b'line %d of file %d' % (j, i)
                   for i in range(5) for j in range(100)]
  assert sum(b.sizes.sum() for b in batches) == sum(
      len(t) + 1 for t in texts)
  with pytest.raises(ValueError, match=r'small.model.* \d+ tokens.*vocab_size=9'):
    _Batches(params.Set(vocab_size=9), 1)


@pytest.mark.parametrize('do_eval', [False, True])
def testPythonSourcesAreTheDefault(do_eval):
  p = _Params('', split='test' if do_eval else 'train')
  batches = _Batches(p.Set(sequence_length=64), 20, do_eval=do_eval)
  assert any(b'import' in row for row in _Rows(batches))


def testSplits(files):

  def _Names(split, test_files):
    with tf.Graph().as_default():
      data = _Params(files, split=split).Set(test_files=test_files).Instantiate()
    return {os.path.basename(f) for f in data.Files()}

  everything = {f'{i}.txt' for i in range(5)}
  apart = files.replace('*', '[34]')
  assert _Names('train', apart) == everything
  assert _Names('test', apart) == {'3.txt', '4.txt'}
  assert _Names('train', '') == everything  # None of five is held out.
  with pytest.raises(ValueError, match='Of 5 text files .* the test split'):
    _Names('test', '')


def testErrors(files):
  with pytest.raises(ValueError, match="text_unit is 'word'"):
    _Params(files, text_unit='word').Instantiate()
  with pytest.raises(ValueError, match="split is 'dev'"):
    _Params(files, split='dev').Instantiate()
  with pytest.raises(ValueError, match='No file matches .*nothing'):
    _Batches(_Params('nothing/*.txt'), 1)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
