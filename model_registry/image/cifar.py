"""CIFAR-10 and CIFAR-100: 32x32 colour images, 50,000 to train and 10,000 to test.

'Learning Multiple Layers of Features from Tiny Images' (A. Krizhevsky, 2009).
Read from the original binary files, or from what tensorflow-datasets prepares.
"""

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np

from model_registry.image import data_files
from model_registry.image import input_generator
from model_registry.image import records

NUM_TRAIN = 50000
NUM_TEST = 10000
_SHAPE = (32, 32, 3)
_PIXEL_BYTES = 32 * 32 * 3
# Of the training images' channels, from 0 to 255.
_MEAN = {
    10: np.array([125.3, 123.0, 113.9], np.float32),
    100: np.array([129.3, 124.1, 112.4], np.float32),
}
_STDDEV = {
    10: np.array([63.0, 62.1, 66.7], np.float32),
    100: np.array([68.2, 65.4, 70.4], np.float32),
}


class _CifarInput(input_generator.ImageInput):
  """Batches of CIFAR images, each channel with mean 0 and variance 1."""

  # Set by subclasses.
  _NAME = None
  _NUM_CLASSES = None
  # A binary file's record: labels, one byte each, the last of which counts; then
  # all red, all green and all blue bytes.
  _LABEL_BYTES = None
  _FOLDER = None  # Of the binary files in their archive.
  _FILES = {}  # Their names by split.

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('split', 'train', "'train' or 'test'.")
    p.Define(
        'data_dir', '', 'The folder with the original binary files, or the '
        'one in which tensorflow-datasets keeps its data sets. Empty: '
        f'{cls._DefaultDir()}, and then ~/tensorflow_datasets.')
    p.image_shape = _SHAPE
    p.num_classes = cls._NUM_CLASSES
    p.shuffle_buffer_size = NUM_TRAIN
    p.num_samples = NUM_TRAIN
    return p

  @classmethod
  def _DefaultDir(cls):
    return f'~/data/cifar{cls._NUM_CLASSES}'

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    if p.split not in self._FILES:
      raise ValueError(
          f"{self._NAME} has no split {p.split!r}; choose 'train' or 'test'.")
    self._binary = data_files.NamedFiles(
        self._FILES[p.split], ['', self._FOLDER])
    dataset = f'cifar{self._NUM_CLASSES}'
    self._layout, self._paths = data_files.Find(
        f'{self._NAME} ({p.split})', p.data_dir, self._DefaultDir(),
        self._binary, data_files.PreparedFiles(dataset, p.split),
        'To get them, unpack https://www.cs.toronto.edu/~kriz/'
        f'cifar-{self._NUM_CLASSES}-binary.tar.gz in {{folder}}. Or prepare '
        f'them by `tfds build {dataset}` (pip install tensorflow-datasets).')
    if self._layout is self._binary:
      self._CheckSizes()

  @property
  def _record_bytes(self):
    return self._LABEL_BYTES + _PIXEL_BYTES

  def _CheckSizes(self):
    """Raises a ValueError if the binary files aren't whole."""
    p = self.params
    total = 0
    for path in self._paths:
      size = tf.io.gfile.stat(path).length
      if not size or size % self._record_bytes:
        raise ValueError(
            f'{path} is damaged: it has {size:,} bytes, and a file of '
            f'{self._NAME} has a multiple of {self._record_bytes:,}. Get it '
            'again.')
      total += size // self._record_bytes
    if total != p.num_samples:
      raise ValueError(
          f'The files {self._paths[0]} to {self._paths[-1]} hold {total:,} '
          f'images, and {self._NAME} ({p.split}) has num_samples='
          f'{p.num_samples:,}. Get them again, or, if they are meant to be '
          "others, set the input generator's num_samples.")

  def LoadDataset(self, epoch):
    if self._layout is self._binary:
      return tf.data.FixedLengthRecordDataset(self._paths, self._record_bytes)
    return records.Read(self._paths)

  def DecodeExample(self, example, seed):
    if self._layout is self._binary:
      data = tf.io.decode_raw(example, tf.uint8)
      label = tf.cast(data[self._LABEL_BYTES - 1], tf.int64)
      planes = tf.reshape(data[self._LABEL_BYTES:], [3, 32, 32])
      image = tf.transpose(planes, [1, 2, 0])
    else:
      encoded, label = records.Parse(example.record, 'image', 'label')
      image = tf.ensure_shape(tf.io.decode_png(encoded, channels=3), _SHAPE)
    image = tf.cast(image, tf.float32)
    image = (image - _MEAN[self._NUM_CLASSES]) / _STDDEV[self._NUM_CLASSES]
    return py_utils.NestedMap(image=image, label=label)

  def Files(self):
    return [] if self._layout is self._binary else self._paths


class Cifar10Input(_CifarInput):
  """Batches of CIFAR-10 images, each channel with mean 0 and variance 1."""

  _NAME = 'CIFAR-10'
  _NUM_CLASSES = 10
  _LABEL_BYTES = 1
  _FOLDER = 'cifar-10-batches-bin'
  _FILES = {
      'train': [f'data_batch_{i}.bin' for i in range(1, 6)],
      'test': ['test_batch.bin'],
  }


class Cifar100Input(_CifarInput):
  """Batches of CIFAR-100 images with their fine labels."""

  _NAME = 'CIFAR-100'
  _NUM_CLASSES = 100
  _LABEL_BYTES = 2
  _FOLDER = 'cifar-100-binary'
  _FILES = {'train': ['train.bin'], 'test': ['test.bin']}
