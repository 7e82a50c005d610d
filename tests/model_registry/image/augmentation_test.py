"""Shifts, flips and windows: what they may be, and that the seed decides."""

import sys

import lingvo.compat as tf
import numpy as np
import pytest

from model_registry.image import augmentation


def _Run(*tensors):
  with tf.Session() as session:
    return session.run(tensors)


def _Images(shape):
  return np.random.RandomState(1).uniform(1., 2., shape)


def _Thrice(function, *args):
  """What a function gives for one seed, for the same, and for another."""
  with tf.Graph().as_default():
    return _Run(*[
        function(*args, seed=tf.constant([1, s], tf.int64)) for s in (2, 2, 3)])


def testRandomShift():
  images = _Images([50, 4, 6, 3])
  first, again, other = _Thrice(augmentation.RandomShift, images, 2)
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


def testRandomFlip():
  images = _Images([200, 2, 3, 1])
  first, again, other = _Thrice(augmentation.RandomFlip, images)
  np.testing.assert_array_equal(first, again)
  assert (first != other).any()
  flipped = (first == images[:, :, ::-1]).all(axis=(1, 2, 3))
  same = (first == images).all(axis=(1, 2, 3))
  assert (flipped ^ same).all()
  assert 70 < flipped.sum() < 130


def testRandomWindow():
  height, width = 300, 400
  with tf.Graph().as_default():
    seeds = tf.stack([tf.range(200, dtype=tf.int64)] * 2, 1)
    shape = tf.constant([height, width, 3])
    # pylint: disable=g-long-lambda
    windows = tf.map_fn(
        lambda s: augmentation.RandomWindow(shape, s), seeds, dtype=tf.int32)
    again = augmentation.RandomWindow(shape, tf.constant([7, 7], tf.int64))
    windows, again = _Run(windows, again)
  np.testing.assert_array_equal(windows[7], again)
  top, left, h, w = windows.T
  assert (top >= 0).all() and (top + h <= height).all()
  assert (left >= 0).all() and (left + w <= width).all()
  area = h * w / (height * width)
  assert .079 < area.min() < .2 and .8 < area.max() <= 1.
  # A pixel more or less.
  assert ((w - 1) / (h + 1)).max() < 4 / 3 and ((w + 1) / (h - 1)).min() > 3 / 4
  assert (w / h).max() > 1.25 and (w / h).min() < .8


@pytest.mark.parametrize('shape, expected', [
    ((256, 300), (16, 38, 224, 224)),
    ((512, 256), (144, 16, 224, 224)),
    ((100, 60), (24, 4, 52, 52)),
    ((1, 1), (0, 0, 1, 1)),
])
def testCentralWindow(shape, expected):
  with tf.Graph().as_default():
    window, = _Run(
        augmentation.CentralWindow(tf.constant([*shape, 3]), 224 / 256))
  assert tuple(window) == expected


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
