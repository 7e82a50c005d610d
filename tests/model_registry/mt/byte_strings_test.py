"""Byte strings: the same for each seed, and what they are turned into."""

import sys

import numpy as np
import pytest

from model_registry.mt import byte_strings
from model_registry.text import vocabulary
from tests.model_registry.image import input_stream


def _Params(**kwargs):
  return byte_strings.ByteStringInput.Params().Set(
      name='input', batch_size=50, bucket_upper_bound=[10], min_length=2,
      max_length=9, num_samples=200, **kwargs)


def _Pairs(batches):
  words = vocabulary.ByteVocabulary()
  return [(words.Decode(s), words.Decode(t)) for batch in batches
          for s, t in zip(batch.src.ids, batch.tgt.labels)]


@pytest.mark.parametrize('task', ['reverse', 'sort'])
def testPairs(task):
  with input_stream.Open(_Params(task=task), do_eval=True) as stream:
    pairs = _Pairs(stream.Rest())
  assert len(pairs) == 200
  for source, target in pairs:
    assert target == (
        source[::-1] if task == 'reverse' else bytes(sorted(source)))
  assert set(len(s) for s, _ in pairs) == set(range(2, 10))
  assert len(set(b''.join(s for s, _ in pairs))) > 240  # Of 256.


def testStringsDependOnTheSeedAlone():
  def _Read(seed, do_eval):
    params = _Params(random_seed=seed)
    with input_stream.Open(params, do_eval=do_eval) as stream:
      return _Pairs(stream.Next(4))

  first = _Read(1, True)
  assert _Read(1, True) == first
  assert not set(_Read(2, False)) & set(first)


def testUnknownTask():
  with pytest.raises(ValueError, match="'shuffle'.*reverse, sort"):
    _Params(task='shuffle').Instantiate()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
