"""From text to token ids and back: as bytes, or by a sentencepiece model.

A vocabulary has `size`, the number of ids; `sos` and `eos`, the ids that begin
and end a text; `Encode` and `Decode`.
"""

import os

import numpy as np
import sentencepiece


def Vocabulary(name):
  """The vocabulary of a name.

  Args:
    name: 'bytes', or the path of a sentencepiece model.

  Returns:
    A ByteVocabulary or SentencePieceVocabulary.

  Raises:
    ValueError: there is no such file, or it isn't a usable sentencepiece model.
  """
  return ByteVocabulary() if name == 'bytes' else SentencePieceVocabulary(name)


def Define(p):
  """Defines in an input generator's params what OfInput reads."""
  p.Define('vocabulary', 'bytes',
           "'bytes', or the path of a sentencepiece model.")
  p.Define('vocab_size', ByteVocabulary.size,
           'The number of tokens that the model knows.')


def OfInput(p):
  """The vocabulary that an input generator's params name.

  Raises:
    ValueError: As Vocabulary; or it is larger than p.vocab_size.
  """
  words = Vocabulary(p.vocabulary)
  if words.size > p.vocab_size:
    raise ValueError(
        f'{p.name}: the vocabulary {p.vocabulary!r} has {words.size} tokens, '
        f'but the model knows vocab_size={p.vocab_size}. Give the model as '
        'many, or take a smaller vocabulary.')
  return words


class ByteVocabulary:
  """A token for each byte: 3 + its value. Id 0 stands for nothing.

  Attributes:
    sizes: int32 [size], how many bytes each token stands for.
  """

  sos, eos = 1, 2
  size = 3 + 256
  sizes = np.array([0] * 3 + [1] * 256, np.int32)

  def Encode(self, text):
    """The tokens of a text, bytes: int32 [n], without sos and eos."""
    return np.frombuffer(text, np.uint8).astype(np.int32) + 3

  def Decode(self, ids):
    """The text of tokens, bytes; those that stand for no byte are left out."""
    ids = np.asarray(ids)
    return (ids[ids >= 3] - 3).astype(np.uint8).tobytes()


class SentencePieceVocabulary:
  """The pieces of a sentencepiece model.

  Its normalisation may lose something: by default, runs of white space become
  one space. Models made with normalization_rule_name='identity' and
  remove_extra_whitespaces=False keep everything.

  Attributes: those of ByteVocabulary.
  """

  def __init__(self, path):
    if not os.path.isfile(path):
      raise ValueError(
          f'There is no sentencepiece model {path!r}. Name one in the input '
          "generator's vocabulary, make one (sentencepiece."
          "SentencePieceTrainer.train(input='text.txt', model_prefix='name', "
          "vocab_size=32000)), or take 'bytes'.")
    self._model = sentencepiece.SentencePieceProcessor()
    try:
      self._model.Load(path)
    except (OSError, RuntimeError) as e:
      raise ValueError(f'{path!r} is not a sentencepiece model: {e}') from e
    self.size = self._model.GetPieceSize()
    self.sos, self.eos = self._model.bos_id(), self._model.eos_id()
    if min(self.sos, self.eos) < 0:
      raise ValueError(
          f'The sentencepiece model {path!r} has no pieces that begin and end a '
          f'text (bos_id={self.sos}, eos_id={self.eos}). Make it with bos_id=1 '
          'and eos_id=2, which are the defaults.')
    self.sizes = np.array([self._Size(i) for i in range(self.size)], np.int32)

  def _Size(self, i):
    """How many bytes piece i stands for; for an unknown character, 1."""
    if self._model.IsControl(i):
      return 0
    if self._model.IsByte(i) or self._model.IsUnknown(i):
      return 1
    return len(self._model.IdToPiece(i).replace('\u2581', ' ').encode())

  def Encode(self, text):
    """The tokens of a text, bytes: int32 [n], without sos and eos.

    What isn't UTF-8 is replaced by U+FFFD.
    """
    text = text.decode('utf-8', errors='replace')
    return np.array(self._model.EncodeAsIds(text), np.int32)

  def Decode(self, ids):
    """The text of tokens, bytes."""
    return self._model.DecodeIds([int(i) for i in ids]).encode()
