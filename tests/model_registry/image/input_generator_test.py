"""Batches come in the right order, each example as often as it should."""

import contextlib
import sys

import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import py_utils
import numpy as np
import pytest

from model_registry.image import input_generator

_NUM_EXAMPLES, _BATCH = 10, 4


class _Numbered(input_generator.ImageInput):
  """Ten examples; label i is i, and so is every pixel of image i, plus one."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.image_shape = (3, 5, 2)
    p.batch_size = _BATCH
    p.random_seed = 7
    return p

  def LoadDataset(self):
    labels = np.arange(_NUM_EXAMPLES)
    ones = np.ones([_NUM_EXAMPLES, 3, 5, 2], np.float32)
    images = ones * (1. + labels[:, None, None, None])
    return tf.data.Dataset.from_tensor_slices(
        py_utils.NestedMap(image=images.astype(np.float32), label=labels))


class _Stream:
  """The batches of an input generator, in a session."""

  def __init__(self, session, generator, batch):
    self._session, self._generator, self._batch = session, generator, batch
    generator.Initialize(session)

  def Next(self, n):
    return [self._session.run(self._batch) for _ in range(n)]

  def Reset(self):
    self._generator.Reset(self._session)


@contextlib.contextmanager
def _Open(do_eval=False, global_step=0, **params):
  """A _Stream in a graph and a session of its own; each batch is a step."""
  cluster = cluster_factory.Current().params.Copy().Set(do_eval=do_eval)
  graph = tf.Graph()
  with graph.as_default(), cluster.Instantiate():
    step = py_utils.GetOrCreateGlobalStepVar()
    generator = _Numbered.Params().Set(**params).Instantiate()
    batch = generator.GetPreprocessedInputBatch()
    with tf.control_dependencies(batch.Flatten()):
      count = tf.no_op() if do_eval else tf.assign_add(step, 1).op
    with tf.control_dependencies([count]):
      counted = batch.Transform(tf.identity)
    init = tf.global_variables_initializer()
    start = tf.assign(step, global_step)
    with tf.Session(graph=graph) as session:
      session.run(init)
      session.run(start)
      yield _Stream(session, generator, counted)


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
  for step, batch in enumerate(batches):
    assert batch.step == step
    assert batch.label.dtype == np.int64 and batch.image.dtype == np.float32
    np.testing.assert_array_equal(batch.weight, np.ones([_BATCH]))
    np.testing.assert_array_equal(
        batch.image,
        np.broadcast_to(1. + batch.label[:, None, None, None], [4, 3, 5, 2]))


def testOrderAndAugmentationDependOnTheSeedAlone():
  expected = _Batches(6, max_shift=1)
  _AssertSame(_Batches(6, max_shift=1), expected)
  other = _Batches(6, max_shift=1, random_seed=8)
  assert any((b.label != e.label).any() for b, e in zip(other, expected))


@pytest.mark.parametrize('global_step', [1, 5])
def testResumesWhereTheGlobalStepIs(global_step):
  expected = _Batches(8, max_shift=1)[global_step:]
  _AssertSame(
      _Batches(8 - global_step, max_shift=1, global_step=global_step), expected)
  first = _Batches(1, global_step=global_step, skip_to_global_step=False)[0]
  assert first.step == 0


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


def testRandomShift():
  images = np.random.RandomState(1).uniform(1., 2., [50, 4, 6, 3])
  with tf.Graph().as_default(), tf.Session() as session:
    seeds = [tf.constant([1, s], tf.int64) for s in (2, 2, 3)]
    first, again, other = session.run([
        input_generator.RandomShift(tf.constant(images), 2, s) for s in seeds])
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()
  padded = np.pad(images, [(0, 0), (2, 2), (2, 2), (0, 0)])
  shifts = set()
  for i, image in enumerate(first):
    found = [(y, x) for y in range(5) for x in range(5)
             if (padded[i, y:y + 4, x:x + 6] == image).all()]
    assert len(found) == 1
    shifts.update(found)
  assert len(shifts) > 15  # Of 25.


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
