"""The micro-batches of a NestedMap, one slice each, on one device.

TensorArrays carry them into, round and out of the loops: a slice is written
once and read without a copy. int32 travels as int64, since TensorFlow
keeps int32 tensors of a GPU in host memory, through which each one sent from
stage to stage would pass.
"""

import lingvo.compat as tf

from lingvo_gpipe import lingvo_compat


def ToWire(x):
  """x as it travels between devices."""
  return tf.cast(x, tf.int64) if x.dtype == tf.int32 else x


def FromWire(x, dtype):
  """x as the cell knows it."""
  return tf.cast(x, dtype) if x.dtype != dtype else x


def _WireType(dtype):
  return tf.int64 if dtype == tf.int32 else dtype


class Slices:
  """`length` slices of each tensor of a NestedMap.

  The object is immutable: Write gives a new one, whose `arrays` go round the
  loop in place of the old (`With`).
  """

  def __init__(self, spec, length, arrays=None, empty=None):
    """Makes empty slices; unwritten ones read as zeros.

    Args:
      spec: NestedMap of TensorSpec, one slice's shapes and dtypes.
      length: The number of slices, an int or int32 scalar.
      arrays: The TensorArrays to use, in the order of spec.Flatten().
      empty: What the arrays were before anything was written.
    """
    self._spec = spec
    self._length = length
    if arrays is None:
      # On this device, not on that of whoever writes first.
      arrays = [
          tf.TensorArray(
              _WireType(s.dtype), size=length, element_shape=s.shape,
              clear_after_read=False, colocate_with_first_write_call=False)
          for s in spec.Flatten()
      ]
    self.arrays = arrays
    self._empty = empty or arrays

  @classmethod
  def Of(cls, nmap, length):
    """The slices of tensors [length, ...]."""
    spec = nmap.Transform(lambda x: tf.TensorSpec(x.shape[1:], x.dtype))
    empty = cls(spec, length)
    return empty.With(
        [a.unstack(ToWire(x)) for a, x in zip(empty.arrays, nmap.Flatten())])

  def With(self, arrays):
    """The same slices, held by `arrays`."""
    return Slices(self._spec, self._length, list(arrays), self._empty)

  def Write(self, t, nmap):
    """Sets slice t.

    Args:
      t: int32 scalar.
      nmap: NestedMap of tensors that fits the spec.

    Returns:
      The new Slices.
    """
    return self.With(
        [a.write(t, ToWire(x)) for a, x in zip(self.arrays, nmap.Flatten())])

  def Read(self, t):
    """The NestedMap of slice t."""
    return self._Pack([a.read(t) for a in self.arrays],
                      [s.shape for s in self._spec.Flatten()])

  def Stack(self):
    """The NestedMap of tensors [length, ...]."""
    length = self._length if isinstance(self._length, int) else None
    return self._Pack(
        [a.stack() for a in self.arrays],
        [tf.TensorShape([length]).concatenate(s.shape)
         for s in self._spec.Flatten()])

  def Detached(self):
    """The same slices, but not data-dependent on what wrote them.

    They are read after the writes, by control edges alone. `tf.gradients` would
    otherwise walk through them back into the loop, whose gradient is made
    elsewhere.
    """
    if lingvo_compat.InFunction(tf.get_default_graph()):
      return self  # A functional loop is one op, whose gradient isn't asked.
    with tf.control_dependencies([a.flow for a in self.arrays]):
      return self.With([a.identity() for a in self._empty])

  def _Pack(self, tensors, shapes):
    out = []
    for x, spec, shape in zip(tensors, self._spec.Flatten(), shapes):
      x = FromWire(x, spec.dtype)
      x.set_shape(shape)
      out.append(x)
    return self._spec.Pack(out)
