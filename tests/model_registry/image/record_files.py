"""Writes TFRecord files of images for tests."""

import io

import lingvo.compat as tf
from PIL import Image


def Encode(image, kind):
  """Returns an image, uint8 [height, width, 3], as the bytes of a file.

  Args:
    image: A numpy array.
    kind: 'PNG' or 'JPEG'.
  """
  buffer = io.BytesIO()
  Image.fromarray(image).save(buffer, kind, quality=100, subsampling=0)
  return buffer.getvalue()


def _Feature(value):
  if isinstance(value, int):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
  return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))


def Write(path, examples):
  """Writes a file of tf.train.Examples.

  Args:
    path: A pathlib.Path. Its folders are made.
    examples: A list of dicts, whose values are ints and bytes.
  """
  path.parent.mkdir(parents=True, exist_ok=True)
  with tf.io.TFRecordWriter(str(path)) as writer:
    for example in examples:
      features = tf.train.Features(
          feature={k: _Feature(v) for k, v in example.items()})
      writer.write(tf.train.Example(features=features).SerializeToString())
