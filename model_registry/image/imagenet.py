"""ImageNet (ILSVRC 2012): 1,281,167 images to train and 50,000 to test with.

'ImageNet Large Scale Visual Recognition Challenge' (arXiv 1409.0575). Read from
TFRecords: those that TensorFlow's models and TPU tools write, or those that
tensorflow-datasets prepares.
"""

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np

from model_registry.image import augmentation
from model_registry.image import data_files
from model_registry.image import input_generator
from model_registry.image import records

NUM_TRAIN = 1281167
NUM_VALIDATION = 50000
NUM_CLASSES = 1000
_DEFAULT_DIR = '~/data/imagenet'
# Of the training images' channels, from 0 to 255.
_MEAN = np.array([123.675, 116.28, 103.53], np.float32)
_STDDEV = np.array([58.395, 57.12, 57.375], np.float32)
# Evaluation takes the middle 224x224 of an image whose shorter side is 256.
_CENTRE = 224 / 256


class ImageNetInput(input_generator.ImageInput):
  """Batches of ImageNet images, each channel with mean 0 and variance 1.

  In training, a random part of the image at a random aspect ratio, flipped or
  not; in evaluation, the middle.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('split', 'train', "'train' or 'validation'.")
    p.Define(
        'data_dir', '', 'The folder with the files train-00000-of-01024 and so '
        'on, or the one in which tensorflow-datasets keeps its data sets. '
        f'Empty: {_DEFAULT_DIR}, and then ~/tensorflow_datasets.')
    p.image_shape = (224, 224, 3)
    p.num_classes = NUM_CLASSES
    p.num_samples = NUM_TRAIN
    p.random_flip = True
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    if p.split not in ('train', 'validation'):
      raise ValueError(f'ImageNet has no split {p.split!r}; choose '
                       "'train' or 'validation'.")
    self._original = data_files.ShardedFiles(p.split)
    self._layout, self._paths = data_files.Find(
        f'ImageNet ({p.split})', p.data_dir, _DEFAULT_DIR, self._original,
        data_files.PreparedFiles('imagenet2012', p.split),
        'To get them, download ILSVRC 2012 from https://image-net.org and '
        'write it as TFRecords into {folder}, by imagenet_to_gcs.py of '
        'https://github.com/tensorflow/tpu. Or prepare them by `tfds build '
        'imagenet2012` (pip install tensorflow-datasets).')

  def LoadDataset(self, epoch):
    if epoch is None:
      return records.Read(self._paths)
    return records.Read(self._paths, tf.stack([self.params.random_seed, epoch]))

  def DecodeExample(self, example, seed):
    if self._layout is self._original:
      encoded, label = records.Parse(
          example.record, 'image/encoded', 'image/class/label')
      label -= 1  # There 0 is the background.
    else:
      encoded, label = records.Parse(example.record, 'image', 'label')
    is_jpeg = tf.io.is_jpeg(encoded)
    with tf.control_dependencies([
        tf.debugging.Assert(is_jpeg, ['An image is not a JPEG in', example.path])
    ]):
      shape = tf.io.extract_jpeg_shape(encoded)
    if self.do_eval:
      window = augmentation.CentralWindow(shape, _CENTRE)
    else:
      window = augmentation.RandomWindow(shape, seed)
    # Decodes the window alone, which saves half of the time.
    image = tf.io.decode_and_crop_jpeg(encoded, window, channels=3)
    image = tf.image.resize(image, self.params.image_shape[:2])
    image = (image - _MEAN) / _STDDEV
    return py_utils.NestedMap(image=image, label=label)

  def Files(self):
    return self._paths
