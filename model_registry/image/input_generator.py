"""Labelled images on tf.data, in an order that depends on the seed alone.

A data set is a subclass of ImageInput with a LoadDataset.
"""

import lingvo.compat as tf
from lingvo.core import base_input_generator
from lingvo.core import datasource
from lingvo.core import py_utils


class SeededDatasetSource(datasource.TFDatasetSource):
  """Batches from the input generator's BuildDataset, in a fixed order.

  In training, batch n goes to step n. So does it where training resumes from a
  checkpoint: batches that have been trained are read and skipped.
  """

  def GetDataset(self):
    return self._input_generator.BuildDataset()

  def _InitIterator(self):
    # As the parent's, which however lets tf.data give up the order for speed.
    if self.host_id in self._dataset:
      return
    with py_utils.GlobalStepContext(None):
      dataset = self.GetDataset()
    self._dataset[self.host_id] = dataset
    if tf.executing_eagerly_outside_functions():
      self._iterator[self.host_id] = iter(dataset)
    else:
      self._iterator[self.host_id] = (
          tf.data.make_initializable_iterator(dataset))

  def GetNext(self):
    batch = super().GetNext()
    if self.do_eval or not self._input_generator.params.skip_to_global_step:
      return batch
    iterator = self._iterator[self.host_id]
    global_step = py_utils.GetGlobalStep()
    (batch,) = tf.while_loop_v2(
        lambda batch: batch.step < global_step,
        lambda batch: (iterator.get_next(),), (batch,),
        parallel_iterations=1)
    return batch


class ImageInput(base_input_generator.BaseInputGenerator):
  """Base of the image data sets.

  In training: shuffled, repeated, batched, augmented, for ever. In evaluation:
  every example once and in order, and the last batch filled up with examples of
  weight 0, so that its shape is that of the others. A batch is a NestedMap:

    image:  float32 [batch, height, width, channels]
    label:  int64 [batch]
    weight: float32 [batch], 1 for a real example, 0 for one that fills up
    step:   int64 [], the batch's place in the stream, from 0
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('image_shape', (0, 0, 0), 'Height, width, channels.')
    p.Define('num_classes', 0, 'The number of classes.')
    p.Define('shuffle_buffer_size', 10000,
             'The number of examples to shuffle among, in training.')
    p.Define('max_shift', 0, 'In training, each image is shifted by up to this '
             'many pixels in either direction.')
    p.Define('skip_to_global_step', True, 'In training, whether to read and '
             'skip the batches before the global step, so that a resumed run '
             'sees what it would have seen uninterrupted.')
    p.file_datasource = SeededDatasetSource.Params()
    p.random_seed = 0
    p.resettable = True
    return p

  def LoadDataset(self):
    """The examples, in order.

    Returns:
      A tf.data.Dataset of NestedMaps: `image`, float32 of p.image_shape, and
      `label`, int64 [].
    """
    raise NotImplementedError(type(self))

  def BuildDataset(self):
    """Returns the tf.data.Dataset of batches."""
    p = self.params
    batch_size = self.InfeedBatchSize()
    dataset = self.LoadDataset()
    if self.do_eval:
      dataset = dataset.batch(batch_size)
    else:
      dataset = dataset.shuffle(p.shuffle_buffer_size, seed=p.random_seed)
      dataset = dataset.repeat().batch(batch_size, drop_remainder=True)
    return dataset.enumerate().map(
        self._FinishBatch,
        num_parallel_calls=tf.data.experimental.AUTOTUNE,
        deterministic=True).prefetch(tf.data.experimental.AUTOTUNE)

  def Reset(self, sess=None):
    """Starts from the first batch again."""
    self.datasource.Reset(sess)

  def _FinishBatch(self, step, batch):
    """Augments a batch, or fills it up, and adds its weight and step."""
    p = self.params
    batch_size = self.InfeedBatchSize()
    image = batch.image
    if p.max_shift and not self.do_eval:
      image = RandomShift(image, p.max_shift, tf.stack([p.random_seed, step]))
    weight = tf.ones_like(batch.label, tf.float32)
    return py_utils.NestedMap(
        image=py_utils.PadOrTrimTo(image, [batch_size, *p.image_shape]),
        label=py_utils.PadOrTrimTo(batch.label, [batch_size]),
        weight=py_utils.PadOrTrimTo(weight, [batch_size]),
        step=step)


def RandomShift(images, max_shift, seed):
  """Shifts each image by some pixels; zeros come in from the border.

  Args:
    images: A tensor [batch, height, width, channels].
    max_shift: The largest shift in either direction, an int > 0.
    seed: int64 [2]. The same seed gives the same shifts.

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
