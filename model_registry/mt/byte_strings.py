"""Random byte strings and what a program makes of them: tasks to check with."""

import lingvo.compat as tf
from lingvo.core import py_utils

from model_registry.mt import pair_input

_TASKS = {'reverse': lambda x: tf.reverse(x, [0]), 'sort': tf.sort}
# Endless; batches are counted in int64.
_MANY = 2**40


class ByteStringInput(pair_input.SentencePairInput):
  """Random bytes, and the same bytes in another order.

  In training each pair is new; in evaluation there are p.num_samples. They
  depend on p.random_seed and their place alone.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('task', 'reverse', f'One of {", ".join(_TASKS)}.')
    p.Define('min_length', 1, 'Of the strings, in bytes.')
    p.Define('max_length', 16, 'Of the strings, in bytes.')
    p.shuffle_buffer_size = 1
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    if p.task not in _TASKS:
      raise ValueError(
          f'{p.name}: task is {p.task!r}; it must be one of '
          f'{", ".join(_TASKS)}.')

  def LoadDataset(self):
    p = self.params

    def _Pair(i):
      seed = tf.stack([tf.cast(p.random_seed, tf.int64), i])
      numbers = tf.random.stateless_uniform(
          [p.max_length + 1], seed, maxval=2**31 - 1, dtype=tf.int32)
      length = p.min_length + numbers[0] % (p.max_length - p.min_length + 1)
      values = numbers[1:1 + length] % 256
      return py_utils.NestedMap(
          source=_String(values), target=_String(_TASKS[p.task](values)))

    return tf.data.Dataset.range(p.num_samples if self.do_eval else _MANY).map(
        _Pair, num_parallel_calls=tf.data.experimental.AUTOTUNE,
        deterministic=True)


def _String(values):
  """The bytes of these values, a scalar string."""
  every_byte = tf.constant([bytes([i]) for i in range(256)])
  return tf.strings.reduce_join(tf.gather(every_byte, values))
