"""Labelled images on tf.data, in an order that depends on the seed alone.

A data set is a subclass of ImageInput with a LoadDataset, and with a
DecodeExample if its examples aren't images already.
"""

import re

import lingvo.compat as tf
from lingvo.core import py_utils

from model_registry import seeded_input
from model_registry.image import augmentation
from model_registry.image import records

_AUTOTUNE = tf.data.experimental.AUTOTUNE


class ImageInput(seeded_input.SeededInput):
  """Base of the image data sets.

  In training: shuffled, augmented, for ever. In evaluation: every example once
  and in order, and the last batch filled up with examples of weight 0, so that
  its shape is that of the others. A batch is a NestedMap:

    image:  float32 [batch, height, width, channels]
    label:  int64 [batch]
    weight: float32 [batch], 1 for a real example, 0 for one that fills up

  Where several trainers share the work (--mode=async), each reads its part of
  every epoch: together they see each example once an epoch.
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
    p.Define('random_flip', False,
             'In training, whether half of the images are flipped left to '
             'right.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    if p.num_samples <= 0:
      raise ValueError(
          f'{p.name} ({self._dataset_name}): num_samples is {p.num_samples}. '
          'Set it to the number of examples in the data set: a resumed run '
          'finds its place in the data by it.')

  @property
  def _dataset_name(self):
    """The data set's name; the class itself may be a wrapper of Lingvo's."""
    classes = [c.__name__ for c in type(self).__mro__]
    return next(name for name in classes if not name.startswith('_Use'))

  def LoadDataset(self, epoch):
    """The examples of the whole data set.

    Args:
      epoch: In training, int64 scalar. Files may be read in an order that
        depends on it and on p.random_seed; examples are shuffled later. In
        evaluation None: examples are then taken in the order in which they come.

    Returns:
      A tf.data.Dataset with p.num_samples examples, as DecodeExample takes
      them.
    """
    raise NotImplementedError(type(self))

  def DecodeExample(self, example, seed):
    """Makes an image of an example. Runs in parallel.

    Args:
      example: An element of LoadDataset.
      seed: int64 [2]. Different for each example and epoch.

    Returns:
      A NestedMap: `image`, float32 of p.image_shape, and `label`, int64 [].
    """
    del seed
    return example

  def Files(self):
    """The paths of the TFRecord files that are read, a list."""
    return []

  def ExplainError(self, error):
    """What a person should know of an error of TensorFlow's.

    Args:
      error: A tf.errors.OpError that came up while the model ran.

    Returns:
      A text that says what is wrong with the data; None if it isn't the data.
    """
    # TensorFlow names the operator that failed, and may name those around it.
    at = (error.op.type if error.op else '') + error.message
    if 'IteratorGetNext' not in at or isinstance(
        error, tf.errors.OutOfRangeError):
      return None
    name = self._dataset_name
    if 'Input dataset was expected to contain' in error.message:
      return (f'The data of {name} have another number of examples than '
              f'num_samples={self.params.num_samples}. If they are meant to, '
              "set the input generator's num_samples.")
    if isinstance(error, tf.errors.DataLossError):
      damaged = records.FirstDamaged(self.Files())
      if damaged:
        return f'{damaged}. Get the file again.'
    # What comes before the operators' names, without the lines above it.
    reason = error.message.partition('[[')[0].strip().rpartition('\n')[2]
    reason = re.sub(r'^\(\d+\) \w+: *', '', reason)  # Several errors are numbered.
    return f"{name} can't read its data: {reason}"

  def BuildDataset(self):
    """As in SeededInput."""
    return self._Batches(None)

  def BuildDatasetFrom(self, global_step):
    """As in SeededInput. Whole epochs are skipped at no cost.

    What is left is read, but not decoded.
    """
    return self._Batches(global_step)

  # There is no control flow to convert here, and looking for it takes longer
  # than all else.
  @tf.autograph.experimental.do_not_convert
  def _Batches(self, global_step):
    """The tf.data.Dataset of batches, from the global step's on or from 0."""
    if self.do_eval:
      numbered = self._Epoch(None).enumerate()
    else:
      # Within a function, so that the variable is read with the first batch.
      numbered = tf.data.Dataset.from_tensors(0).flat_map(
          lambda _: self._Stream(global_step))
    return numbered.map(
        self._Decode, num_parallel_calls=_AUTOTUNE, deterministic=True).batch(
            self.InfeedBatchSize(), drop_remainder=not self.do_eval).map(
                self._FinishBatch,
                num_parallel_calls=_AUTOTUNE,
                deterministic=True).prefetch(_AUTOTUNE)

  def _Epoch(self, epoch):
    """This trainer's examples of an epoch, shuffled; all in order for None."""
    p = self.params
    dataset = self.LoadDataset(epoch).apply(
        tf.data.experimental.assert_cardinality(p.num_samples))
    if epoch is None:
      return dataset
    # The order is to depend on p.random_seed, not on the graph's seed.
    tf.random.set_seed(p.random_seed)
    dataset = dataset.shuffle(p.shuffle_buffer_size, seed=epoch)
    index, count = self.Share()
    return dataset.shard(count, index)

  def _Stream(self, global_step):
    """Pairs (number, example) for ever, from the global step's on."""
    step = tf.constant(0, tf.int64)
    if global_step is not None:
      step = global_step.read_value()
    index, count = self.Share()
    first = step // count * self.InfeedBatchSize()
    epoch_size = -(-(self.params.num_samples - index) // count)
    epochs = tf.data.Dataset.range(first // epoch_size, tf.int64.max)
    examples = epochs.flat_map(self._Epoch).skip(first % epoch_size)
    return examples.enumerate(first)

  def _Decode(self, number, example):
    seed = tf.stack([self.params.random_seed, number])
    decoded = self.DecodeExample(example, seed)
    return py_utils.NestedMap(
        number=number, image=decoded.image, label=decoded.label)

  def _FinishBatch(self, batch):
    """Augments a batch, or fills it up, and adds its weight."""
    p = self.params
    batch_size = self.InfeedBatchSize()
    image = batch.image
    if not self.do_eval:
      seed = tf.stack([p.random_seed, batch.number[0]])
      if p.max_shift:
        image = augmentation.RandomShift(image, p.max_shift, seed)
      if p.random_flip:
        image = augmentation.RandomFlip(image, seed)
    weight = tf.ones_like(batch.label, tf.float32)
    return py_utils.NestedMap(
        image=py_utils.PadOrTrimTo(image, [batch_size, *p.image_shape]),
        label=py_utils.PadOrTrimTo(self._Checked(batch.label), [batch_size]),
        weight=py_utils.PadOrTrimTo(weight, [batch_size]))

  def _Checked(self, label):
    """The labels, checked to be those of the classes."""
    num_classes = self.params.num_classes
    if not num_classes:
      return label
    in_range = tf.reduce_all((label >= 0) & (label < num_classes))
    text = (f'{self._dataset_name}: there are labels outside of 0 to '
            f'{num_classes - 1}, so these are not the files of this data set:')
    with tf.control_dependencies([tf.debugging.Assert(in_range, [text, label])]):
      return tf.identity(label)
