"""Batches come in the right order, each example as often as it should."""

import functools
import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
import pytest

from model_registry.image import input_generator
from tests.model_registry.image import input_stream

_NUM_EXAMPLES, _BATCH = 10, 4


class _Numbered(input_generator.ImageInput):
  """Ten examples; label i is i, and so is every pixel of image i, plus one."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.image_shape = (3, 5, 2)
    p.num_samples = _NUM_EXAMPLES
    p.batch_size = _BATCH
    p.random_seed = 7
    return p

  def LoadDataset(self, epoch):
    labels = np.arange(_NUM_EXAMPLES)
    ones = np.ones([_NUM_EXAMPLES, 3, 5, 2], np.float32)
    images = ones * (1. + labels[:, None, None, None])
    return tf.data.Dataset.from_tensor_slices(
        py_utils.NestedMap(image=images.astype(np.float32), label=labels))


_STREAM = ('do_eval', 'global_step', 'trainer', 'graph_seed')


def _Open(**kwargs):
  stream = {k: kwargs.pop(k) for k in _STREAM if k in kwargs}
  return input_stream.Open(_Numbered.Params().Set(**kwargs), **stream)


@functools.lru_cache(maxsize=None)
def _Batches(n, **kwargs):
  with _Open(**kwargs) as stream:
    return stream.Next(n)


def _AssertSame(batches, expected):
  assert len(batches) == len(expected)
  for batch, other in zip(batches, expected):
    for value, wanted in zip(batch.Flatten(), other.Flatten()):
      np.testing.assert_array_equal(value, wanted)


def testTrainingShufflesEachEpochAndFillsEveryBatch():
  batches = _Batches(10)
  labels = np.concatenate([b.label for b in batches]).reshape([4, 10])
  assert all(sorted(epoch) == list(range(10)) for epoch in labels)
  assert len(set(map(tuple, labels))) == 4
  for batch in batches:
    assert batch.label.dtype == np.int64 and batch.image.dtype == np.float32
    np.testing.assert_array_equal(batch.weight, np.ones([_BATCH]))
    np.testing.assert_array_equal(
        batch.image,
        np.broadcast_to(1. + batch.label[:, None, None, None], [4, 3, 5, 2]))


def testOrderAndAugmentationDependOnTheSeedAlone():
  expected = _Batches(9, max_shift=1)
  _AssertSame(_Batches(6, max_shift=1, graph_seed=5), expected[:6])
  other = _Batches(6, max_shift=1, random_seed=8)
  assert any((b.label != e.label).any() for b, e in zip(other, expected))


@pytest.mark.parametrize('global_step', [1, 6])
def testResumesWhereTheGlobalStepIs(global_step):
  expected = _Batches(9, max_shift=1)
  _AssertSame(
      _Batches(9 - global_step, max_shift=1, global_step=global_step),
      expected[global_step:])


def testBeginsAnewOnRequest():
  batches = _Batches(2, max_shift=1, global_step=5, skip_to_global_step=False)
  _AssertSame(batches, _Batches(9, max_shift=1)[:2])


def testASkippedEpochIsNotRead():
  # Reading what comes before would take hours.
  assert len(_Batches(1, global_step=10**10)) == 1


def testTrainersShareAnEpoch():
  count = 3  # Of ten examples they get 4, 3 and 3.
  batches = [
      _Batches(10, trainer=(i, count), batch_size=1) for i in range(count)
  ]
  shares = [len(range(i, _NUM_EXAMPLES, count)) for i in range(count)]
  for epoch in range(2):
    seen = []
    for i, n in enumerate(shares):
      part = batches[i][epoch * n:(epoch + 1) * n]
      seen += [b.label[0] for b in part]
    assert sorted(seen) == list(range(_NUM_EXAMPLES))
  resumed = _Batches(4, trainer=(1, count), batch_size=1, global_step=6 * count)
  _AssertSame(resumed, batches[1][6:])


def testSplitsHaveAStaticSize():
  with tf.Graph().as_default():
    py_utils.GetOrCreateGlobalStepVar()
    generator = _Numbered.Params().Instantiate()
    first, second = generator.SplitInputBatch(2)
  assert first.image.shape == second.image.shape == [2, 3, 5, 2]
  assert first.label.shape == [2]


@pytest.mark.parametrize('do_eval', [False, True])
def testAnotherNumberOfExamplesIsAnError(do_eval):
  with _Open(do_eval=do_eval, num_samples=11) as stream:
    with pytest.raises(tf.errors.FailedPreconditionError) as e:
      stream.Next(4)
    assert 'num_samples=11' in stream.generator.ExplainError(e.value)
  with pytest.raises(ValueError, match='num_samples is 0'):
    _Batches(1, num_samples=0)


def testLabelsThatAreNoClass():
  with _Open(do_eval=True, num_classes=9) as stream:
    with pytest.raises(tf.errors.InvalidArgumentError, match='outside of 0 to 8'):
      stream.Next(3)


def testEvaluationSeesEachExampleOnceAndInOrder():
  with _Open(do_eval=True, max_shift=1) as stream:
    for _ in range(2):
      batches = stream.Next(3)
      labels = np.concatenate([b.label[b.weight == 1.] for b in batches])
      np.testing.assert_array_equal(labels, np.arange(_NUM_EXAMPLES))
      last = batches[-1]
      np.testing.assert_array_equal(last.weight, [1., 1., 0., 0.])
      assert last.image.shape == (_BATCH, 3, 5, 2)
      np.testing.assert_array_equal(last.image[2:], np.zeros([2, 3, 5, 2]))
      with pytest.raises(tf.errors.OutOfRangeError):
        stream.Next(1)
      stream.Reset()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
