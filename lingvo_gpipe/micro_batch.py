"""Micro-batches: split, join, and what seeds their random ops."""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import placement

# Step seeds of one micro-batch lie closer together than this: seeds of names are
# below 2^31.
_SEED_STRIDE = 2**33


def CheckNumber(num_micro_batches):
  """Raises ValueError unless it is a positive integer."""
  if not isinstance(num_micro_batches, int) or num_micro_batches < 1:
    raise ValueError(
        f'num_micro_batches is {num_micro_batches!r}; it must be a positive '
        'integer.')


def Size(batch_size, num_micro_batches, micro_batch_size=None):
  """Returns the size of a micro-batch.

  Args:
    batch_size: The size of the mini-batch, or None if it isn't known.
    num_micro_batches: How many micro-batches to split it into.
    micro_batch_size: The size that the user asked for, or None.

  Raises:
    ValueError: the number isn't positive, the batch size isn't known while the
      graph is built, or the micro-batches don't make up the batch.
  """
  CheckNumber(num_micro_batches)
  if batch_size is None:
    raise ValueError(
        'The batch size of the inputs is not known while the graph is built, '
        f'so it cannot be split into num_micro_batches={num_micro_batches}. '
        'Give the input a static shape: batch with drop_remainder=True, or '
        'call set_shape. Or set pad_batch=True.')
  if micro_batch_size and micro_batch_size * num_micro_batches != batch_size:
    raise ValueError(
        f'micro_batch_size * num_micro_batches is {micro_batch_size} * '
        f'{num_micro_batches} = {micro_batch_size * num_micro_batches}, but '
        f'the batch size is {batch_size}. Leave micro_batch_size None, or '
        'make the product equal the batch size.')
  if batch_size % num_micro_batches:
    raise ValueError(
        f'A batch of {batch_size} cannot be split into num_micro_batches='
        f'{num_micro_batches} equal micro-batches. The '
        f'nearest numbers that fit are {_Nearest(batch_size, num_micro_batches)}. '
        'Or set pad_batch=True for micro-batches of different sizes.')
  return batch_size // num_micro_batches


def _Nearest(batch_size, num_micro_batches):
  """The divisors of batch_size on both sides of num_micro_batches, in words."""
  fits = [m for m in range(1, batch_size + 1) if batch_size % m == 0]
  below = [m for m in fits if m < num_micro_batches][-1:]
  above = [m for m in fits if m > num_micro_batches][:1]
  return ' and '.join(str(m) for m in below + above)


def UnevenSizes(batch_size, num_micro_batches):
  """The sizes of micro-batches of any batch: they differ by one at most.

  Args:
    batch_size: int32 scalar. With fewer examples than micro-batches there are
      fewer micro-batches; none is empty.
    num_micro_batches: An int.

  Returns:
    int32 [min(batch_size, num_micro_batches)].
  """
  num = tf.minimum(batch_size, num_micro_batches)
  larger = tf.cast(tf.range(num) < batch_size % num, tf.int32)
  return batch_size // num + larger


def Split(x, num_micro_batches, batch_dim):
  """[..., batch, ...] -> [num_micro_batches, ..., batch / it, ...].

  Micro-batch t holds consecutive examples, as tf.split would give.
  """
  shape = py_utils.GetShape(x)
  micro = shape[batch_dim] // num_micro_batches
  x = tf.reshape(
      x, shape[:batch_dim] + [num_micro_batches, micro] + shape[batch_dim + 1:])
  if batch_dim == 0:
    return x
  rank = len(shape) + 1
  order = [batch_dim] + [i for i in range(rank) if i != batch_dim]
  return tf.transpose(x, order)


def Join(x, batch_dim):
  """The inverse of Split."""
  shape = py_utils.GetShape(x)
  if batch_dim:
    rank = len(shape)
    order = list(range(1, batch_dim + 1)) + [0] + list(
        range(batch_dim + 1, rank))
    x = tf.transpose(x, order)
    shape = [shape[i] for i in order]
  return tf.reshape(
      x, shape[:batch_dim] + [shape[batch_dim] * shape[batch_dim + 1]] +
      shape[batch_dim + 2:])


class RandomNumbers:
  """What a stage's random ops see: Lingvo's step seed and global step.

  The seed depends on the micro-batch, and both are computed beside the stage, so
  that the forward pass and its recomputation draw the same numbers and none of
  it crosses from stage to stage within the loop. The global step is that of
  training, for whatever else depends on it: schedules, say.
  """

  def __init__(self, stage, seed, step, by_stage):
    """Brings the numbers to the stage's host, once a step.

    Args:
      stage: A Stage.
      seed: int64 scalar, the step seed outside.
      step: The global step, an integer scalar, or None if there is none.
      by_stage: Whether the seeds differ by stage, too.
    """
    self._host = placement.HostOf(stage.device)
    with tf.device(self._host):
      self._seed = tf.identity(seed)
      self._step = None if step is None else tf.identity(step)
      if by_stage:
        self._seed += py_utils.GenerateSeedFromName(stage.name)

  def At(self, t):
    """(step seed, global step or None) of micro-batch t, an int32 scalar."""
    with tf.device(self._host):
      return self._seed + tf.cast(t, tf.int64) * _SEED_STRIDE, self._step
