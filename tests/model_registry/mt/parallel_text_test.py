"""Parallel text files: pairs of lines, and errors that name the file."""

import subprocess
import sys

import pytest

from model_registry.mt import parallel_text
from tests.model_registry.image import input_stream


def _Write(folder, **files):
  for name, text in files.items():
    (folder / name.replace('_', '.')).write_text(text)


def _Params(folder, **kwargs):
  return parallel_text.ParallelTextInput.Params().Set(
      name='input', batch_size=2, source_files=f'{folder}/*.en',
      target_files=f'{folder}/*.de', **kwargs)


def _Pairs(params):
  with input_stream.Open(params, do_eval=True) as stream:
    words = stream.generator.Vocabulary()

    def _Text(ids, segment_ids):
      return words.Decode(ids[:segment_ids.sum() - 1]).decode()

    return [(_Text(batch.src.ids[i], batch.src.segment_ids[i]),
             _Text(batch.tgt.labels[i], batch.tgt.segment_ids[i]))
            for batch in stream.Rest()
            for i in range(2) if batch.tgt.weights[i, 0]]


def testLinesArePaired(tmp_path):
  _Write(tmp_path, a_en='one\ntwo\n', a_de='eins\nzwei\n', b_en='three\n\nfür',
         b_de='drei\nleer\nfor')
  assert _Pairs(_Params(tmp_path)) == [
      ('one', 'eins'), ('two', 'zwei'), ('three', 'drei'), ('', 'leer'),
      ('für', 'for')]


def testSentencePieces(tmp_path):
  text = 'the cat sat on the mat\nthe dog sat on the cat\n' * 5
  _Write(tmp_path, a_en=text, a_de=text.upper(), corpus_txt=text + text.upper())
  options = dict(input=str(tmp_path / 'corpus.txt'), vocab_size=28,
                 model_prefix=str(tmp_path / 'm'), minloglevel=2)
  # In a process of its own: its trainer and TensorFlow don't go together.
  subprocess.run(
      [sys.executable, '-c', 'import sentencepiece; sentencepiece.'
       f'SentencePieceTrainer.train(**{options!r})'], check=True)
  params = _Params(tmp_path, vocabulary=str(tmp_path / 'm.model'), vocab_size=28)
  pairs = _Pairs(params)
  assert len(pairs) == 10
  assert pairs[0] == ('the cat sat on the mat', 'THE CAT SAT ON THE MAT')


def testAnotherNumberOfLines(tmp_path):
  _Write(tmp_path, a_en='one\ntwo\n', a_de='eins\n')
  with pytest.raises(ValueError, match=r'a\.en has 2 lines, but .*a\.de, .* 1\.'):
    _Params(tmp_path).Instantiate().Files()


def testAnotherNumberOfFiles(tmp_path):
  _Write(tmp_path, a_en='one\n', b_en='two\n', a_de='eins\n')
  with pytest.raises(ValueError, match=r'matches 2 files and target_files.* 1'):
    _Params(tmp_path).Instantiate().Files()


def testNoFiles(tmp_path):
  _Write(tmp_path, a_en='one\n')
  with pytest.raises(ValueError, match=r'No file matches .*\*\.de'):
    _Params(tmp_path).Instantiate().Files()


@pytest.mark.parametrize('text, lines', [
    ('', 0), ('a', 1), ('a\n', 1), ('a\nb', 2), ('\n\n', 2)])
def testNumLines(tmp_path, text, lines):
  path = tmp_path / 'text'
  path.write_text(text)
  assert parallel_text.NumLines(path) == lines


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
