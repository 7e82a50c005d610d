"""scikit-learn's handwritten digits: 1797 real images of 8x8 pixels, bundled.

They are the test set of 'Optical Recognition of Handwritten Digits' (E.
Alpaydin, C. Kaynak, UCI Machine Learning Repository, 1998). Here 1437 of them
are to train on and 360 to test with: a fixed split, stratified by digit.
"""

import functools

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
from sklearn import datasets
from sklearn import model_selection

from model_registry.image import input_generator

NUM_TRAIN = 1437
NUM_TEST = 360


@functools.lru_cache(maxsize=None)
def LoadDigits(split):
  """Loads a split.

  Args:
    split: 'train' or 'test'.

  Returns:
    (images, labels): float32 [n, 8, 8, 1] from 0 to 1, and int64 [n].

  Raises:
    ValueError: there is no such split.
  """
  if split not in ('train', 'test'):
    raise ValueError(
        f"The digits have no split {split!r}; choose 'train' or 'test'.")
  images, labels = datasets.load_digits(return_X_y=True)
  images = (images / 16.0).astype(np.float32).reshape([-1, 8, 8, 1])
  labels = labels.astype(np.int64)
  train, test = model_selection.train_test_split(
      np.arange(len(labels)),
      train_size=NUM_TRAIN,
      test_size=NUM_TEST,
      stratify=labels,
      random_state=0)
  indices = train if split == 'train' else test
  return images[indices], labels[indices]


class DigitsInput(input_generator.ImageInput):
  """Batches of handwritten digits."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('split', 'train', "'train' or 'test'.")
    p.image_shape = (8, 8, 1)
    p.num_classes = 10
    p.num_samples = NUM_TRAIN
    p.shuffle_buffer_size = NUM_TRAIN
    return p

  def LoadDataset(self, epoch):
    images, labels = LoadDigits(self.params.split)
    return tf.data.Dataset.from_tensor_slices(
        py_utils.NestedMap(image=images, label=labels))
