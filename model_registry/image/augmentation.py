"""Random changes to images in training. The same seed makes the same change.

Sources: 'Deep Residual Learning for Image Recognition' (arXiv 1512.03385),
section 4.2, for small images; 'Going Deeper with Convolutions' (arXiv
1409.4842), section 6, for large ones.
"""

import lingvo.compat as tf
from lingvo.core import py_utils


def RandomShift(images, max_shift, seed):
  """Shifts each image by some pixels; zeros come in from the border.

  It is what others call padding by max_shift and cropping at random.

  Args:
    images: A tensor [batch, height, width, channels].
    max_shift: The largest shift in either direction, an int > 0.
    seed: int64 [2].

  Returns:
    A tensor of the shape and dtype of images.
  """
  batch, height, width, _ = py_utils.GetShape(images)
  margin = [max_shift, max_shift]
  padded = tf.pad(images, [[0, 0], margin, margin, [0, 0]])
  corner = tf.random.stateless_uniform(
      [batch, 2, 1], seed, maxval=2 * max_shift + 1, dtype=tf.int32)
  rows = corner[:, 0] + tf.range(height)
  columns = corner[:, 1] + tf.range(width)
  padded = tf.gather(padded, rows, axis=1, batch_dims=1)
  return tf.gather(padded, columns, axis=2, batch_dims=1)


def RandomFlip(images, seed):
  """Flips each image left to right, or doesn't.

  Args:
    images: A tensor [batch, height, width, channels].
    seed: int64 [2].

  Returns:
    A tensor of the shape and dtype of images.
  """
  batch = py_utils.GetShape(images)[0]
  # Drawn by another generator than the shift, which may have the same seed.
  flip = tf.random.stateless_uniform([batch, 1, 1, 1], seed + [0, 1 << 32]) < .5
  return tf.where_v2(flip, tf.reverse(images, axis=[2]), images)


def RandomWindow(shape, seed):
  """A part of an image with a random area and aspect ratio.

  Args:
    shape: int32 [3], the image's height, width and channels.
    seed: int64 [2].

  Returns:
    int32 [4], the window's top, left, height and width: 8% to 100% of the area,
    3/4 to 4/3 as wide as high. The whole image where ten attempts find none.
  """
  top_left, size, _ = tf.image.stateless_sample_distorted_bounding_box(
      shape,
      bounding_boxes=tf.zeros([1, 0, 4]),
      seed=seed,
      min_object_covered=0.,
      aspect_ratio_range=(3 / 4, 4 / 3),
      area_range=(.08, 1.),
      max_attempts=10,
      use_image_if_no_bounding_boxes=True)
  return tf.concat([top_left[:2], size[:2]], 0)


def CentralWindow(shape, share):
  """The square in the middle of an image.

  Args:
    shape: int32 [3], the image's height, width and channels.
    share: The square's side as a share of the image's shorter side: 224 / 256
      for the middle 224x224 of the image at 256 pixels.

  Returns:
    int32 [4], the window's top, left, height and width.
  """
  side = tf.cast(tf.reduce_min(shape[:2]), tf.float32) * share
  side = tf.maximum(tf.cast(tf.round(side), tf.int32), 1)
  return tf.stack([(shape[0] - side) // 2, (shape[1] - side) // 2, side, side])
