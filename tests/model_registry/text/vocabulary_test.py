"""Text to tokens and back."""

import subprocess
import sys

import numpy as np
import pytest

from model_registry.text import vocabulary

_TEXT = ('def Fib(n):\n    """Größe: naïve."""\n    '
         'return n if n < 2 else Fib(n - 1) + Fib(n - 2)\n')


def _Train(folder, **kwargs):
  """Makes a small sentencepiece model; returns its path."""
  (folder / 'text.txt').write_text(_TEXT * 20)
  # In a process of its own: its trainer and TensorFlow don't go together.
  options = dict(
      input=str(folder / 'text.txt'), model_prefix=str(folder / 'small'),
      vocab_size=320, byte_fallback=True, hard_vocab_limit=False,
      minloglevel=2, **kwargs)
  subprocess.run(
      [sys.executable, '-c', 'import sentencepiece; sentencepiece.'
       f'SentencePieceTrainer.train(**{options!r})'], check=True)
  return str(folder / 'small.model')


@pytest.fixture(name='lossless', scope='module')
def _Lossless(tmp_path_factory):
  return vocabulary.Vocabulary(_Train(
      tmp_path_factory.mktemp('lossless'), normalization_rule_name='identity',
      remove_extra_whitespaces=False, add_dummy_prefix=False,
      user_defined_symbols=['\n']))


def testBytes():
  words = vocabulary.Vocabulary('bytes')
  text = bytes(range(256))
  ids = words.Encode(text)
  assert ids.dtype == np.int32
  assert sorted(ids) == list(range(3, words.size))
  assert (words.sizes[ids] == 1).all()
  assert words.Decode(ids) == text
  assert words.Decode([words.sos, *ids[:2], words.eos]) == text[:2]
  assert len(words.Encode(b'')) == 0


@pytest.mark.parametrize('text', [
    _TEXT, 'x', '', 'ß', 'an unseen word: Ω🙂\n', '  two  spaces '])
def testSentencePieceRoundTrip(lossless, text):
  data = text.encode()
  ids = lossless.Encode(data)
  assert ids.dtype == np.int32 and (ids < lossless.size).all()
  assert lossless.Decode(ids) == data
  assert lossless.sizes[ids].sum() == len(data)


def testSentencePieceSizesAreThoseOfThePieces(lossless):
  data = _TEXT.encode()
  ids = lossless.Encode(data)
  assert len(ids) < len(data)  # Some pieces are several bytes.
  for i, end in enumerate(np.cumsum(lossless.sizes[ids])):
    assert lossless.Decode(ids[:i + 1]) == data[:end].decode(
        errors='replace').encode()
  assert lossless.sizes[[lossless.sos, lossless.eos]].sum() == 0


def testWhatIsNotUtf8IsReplaced(lossless):
  assert lossless.Decode(lossless.Encode(b'n\xff1')) == 'n\ufffd1'.encode()


def testErrors(tmp_path):
  with pytest.raises(ValueError, match=r'no sentencepiece model .*none.model'):
    vocabulary.Vocabulary(str(tmp_path / 'none.model'))
  (tmp_path / 'bad.model').write_text('nonsense')
  with pytest.raises(ValueError, match='bad.model. is not a sentencepiece'):
    vocabulary.Vocabulary(str(tmp_path / 'bad.model'))
  path = _Train(tmp_path, bos_id=-1)
  with pytest.raises(ValueError, match=r'small.model.* \(bos_id=-1'):
    vocabulary.Vocabulary(path)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
