"""Micro-batches: split, join, and the numbers that seed their random ops."""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import placement

# Step seeds of one recurrent step lie closer together than this.
_SEED_STRIDE = 1000003


def Size(batch_size, num_micro_batches, micro_batch_size=None):
  """Returns the size of a micro-batch.

  Args:
    batch_size: The size of the mini-batch, or None if it isn't known.
    num_micro_batches: How many micro-batches to split it into.
    micro_batch_size: The size that the user asked for, or None.

  Raises:
    ValueError: the batch size isn't known while the graph is built, or the
      micro-batches don't make up the batch.
  """
  if not isinstance(num_micro_batches, int) or num_micro_batches < 1:
    raise ValueError(
        f'num_micro_batches is {num_micro_batches!r}; it must be a positive '
        'integer.')
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


def FirstId(num_micro_batches):
  """The id of this step's first micro-batch: step * num_micro_batches.

  Returns:
    int64 scalar. Ids stay exact and differ for 2^63 micro-batches.
  """
  step = py_utils.GetGlobalStep()
  if step is None:  # A layer on its own, outside of any task.
    step = py_utils.GetOrCreateGlobalStepVar()
  return tf.cast(step, tf.int64) * num_micro_batches


class RandomNumbers:
  """What a stage's random ops see: Lingvo's step seed and global step.

  Both depend on the micro-batch alone and are computed beside the stage, so
  that the forward pass and its recomputation draw the same numbers and none of
  it crosses from stage to stage within the loop.
  """

  def __init__(self, stage, seed, first_id):
    """Brings the numbers to the stage's host, once a step.

    Args:
      stage: A Stage.
      seed: int64 scalar, the step seed outside.
      first_id: int64 scalar, the id of micro-batch 0, for cells that tell
        micro-batches apart by the global step. None leaves the global step
        alone; then the step seeds differ by stage and micro-batch.
    """
    self._host = placement.HostOf(stage.device)
    with tf.device(self._host):
      self._seed = tf.identity(seed)
      self._first_id = None if first_id is None else tf.identity(first_id)
      if first_id is None:
        self._seed += py_utils.GenerateSeedFromName(stage.name)

  def At(self, t):
    """(step seed, micro-batch id or None) of micro-batch t, an int32 scalar."""
    with tf.device(self._host):
      t = tf.cast(t, tf.int64)
      if self._first_id is None:
        return self._seed + t * _SEED_STRIDE, None
      return self._seed, self._first_id + t
