"""TFRecord files of labelled images.

Each record is a tf.train.Example with an encoded image and a label.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

# Files that are read at a time, so that examples of different ones mix.
_FILES_AT_A_TIME = 16
_READ_BUFFER = 8 << 20


def Read(paths, order_seed=None):
  """Reads records.

  Args:
    paths: A list of the files' paths.
    order_seed: int64 [2], by which the files are shuffled. None: file by file,
      in order.

  Returns:
    A tf.data.Dataset of NestedMaps: `record` and `path`, string scalars.
  """

  def _ReadFile(path):
    dataset = tf.data.TFRecordDataset(path, buffer_size=_READ_BUFFER)
    return dataset.map(lambda r: py_utils.NestedMap(record=r, path=path))

  paths = tf.constant(paths)
  if order_seed is None:
    return tf.data.Dataset.from_tensor_slices(paths).flat_map(_ReadFile)
  paths = tf.random.experimental.stateless_shuffle(paths, order_seed)
  return tf.data.Dataset.from_tensor_slices(paths).interleave(
      _ReadFile,
      cycle_length=_FILES_AT_A_TIME,
      num_parallel_calls=_FILES_AT_A_TIME,
      deterministic=True)


def Parse(record, image_key, label_key):
  """Takes a record apart.

  Args:
    record: A string scalar.
    image_key: The name of the feature with the encoded image.
    label_key: The name of the feature with the label.

  Returns:
    (the encoded image, a string scalar; the label, int64 [])
  """
  features = tf.io.parse_single_example(
      record, {
          image_key: tf.io.FixedLenFeature([], tf.string),
          label_key: tf.io.FixedLenFeature([], tf.int64),
      })
  return features[image_key], features[label_key]


def FirstDamaged(paths):
  """Names the first file that isn't whole, since TensorFlow's errors don't.

  Args:
    paths: The files' paths. They are read through.

  Returns:
    A text, or None if all are whole.
  """
  for path in paths:
    try:
      for _ in tf.compat.v1.io.tf_record_iterator(path):
        pass
    except tf.errors.DataLossError as e:
      return f'{path} is damaged: {e.message}'
  return None
