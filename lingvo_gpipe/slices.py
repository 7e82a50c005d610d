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


class Stacked:
  """How slices lie in a tensor [length, ...]: slice t of x is x[t].

  Attributes:
    length: The number of slices, an int or int32 scalar.
    most: An int that length doesn't exceed, as far as that is known.
    alike: Whether all slices have the same shape. TensorFlow needs to know it to
      read zeros where nothing was written.
  """

  def __init__(self, length, alike=True):
    self.length = length
    self.alike = alike
    self.most = length if isinstance(length, int) else 32

  def SliceShape(self, shape):
    """The shape of a slice of a tensor of this shape."""
    return shape[1:]

  def Take(self, array, x):
    """`array`, a TensorArray, filled with the slices of x."""
    return array.unstack(x)

  def Join(self, array, slice_shape):
    """The tensor of the slices in `array`."""
    x = array.stack()
    length = self.length if isinstance(self.length, int) else None
    x.set_shape(tf.TensorShape([length]).concatenate(slice_shape))
    return x

  def Inside(self, x):
    """A slice as it lies in an array."""
    return x

  def InsideShape(self, shape):
    """The shape of Inside(x) for an x of this shape."""
    return shape

  def Outside(self, x):
    """The inverse of Inside."""
    return x


class Rows:
  """How slices lie in a tensor [..., batch, ...]: runs of examples.

  They may be of different sizes. In an array each has its examples first.

  Attributes:
    length: The number of slices, an int32 scalar.
    most: An int that length doesn't exceed.
    alike: Whether all slices have the same shape.
  """
  alike = False

  def __init__(self, sizes, dim, most):
    """Constructor.

    Args:
      sizes: int32 [length], the slices' sizes; they add up to the batch.
      dim: The batch dimension.
      most: See the attributes.
    """
    self._sizes = sizes
    self._dim = dim
    self.length = tf.shape(sizes)[0]
    self.most = most

  def SliceShape(self, shape):
    shape = shape.as_list()
    shape[self._dim] = None
    return tf.TensorShape(shape)

  def Take(self, array, x):
    return array.split(self.Inside(x), self._sizes)

  def Join(self, array, slice_shape):
    x = self.Outside(array.concat())
    x.set_shape(slice_shape)
    return x

  def Inside(self, x):
    return _Move(x, self._dim, 0)

  def InsideShape(self, shape):
    shape = shape.as_list()
    return tf.TensorShape([shape.pop(self._dim)] + shape)

  def Outside(self, x):
    return _Move(x, 0, self._dim)


def _Move(x, source, target):
  """x with its dimension `source` moved to `target`."""
  if source == target:
    return x
  order = list(range(x.shape.rank))
  order.insert(target, order.pop(source))
  return tf.transpose(x, order)


def Readable(nmap, layout):
  """What reads slices of tensors that lie in the layout, without a copy if it can.

  TensorFlow's own gradient of it is slow: see Slices.Of.

  Args:
    nmap: NestedMap of tensors.
    layout: Stacked or Rows.

  Returns:
    An object with the methods Read and Detached of Slices.
  """
  if isinstance(layout, Stacked):
    return _Views(nmap)
  return Slices.Of(nmap, layout)


class _Views:
  """Slices of tensors [length, ...], read where they lie."""

  def __init__(self, nmap):
    self._nmap = nmap

  def Read(self, t):
    return self._nmap.Transform(lambda x: x[t])

  def Detached(self):
    return self


class Slices:
  """The slices of each tensor of a NestedMap.

  The object is immutable: Write gives a new one, whose `arrays` go round the
  loop in place of the old (`With`).
  """

  def __init__(self, spec, layout, arrays=None, empty=None):
    """Makes empty slices; unwritten ones read as zeros if slices are alike.

    Args:
      spec: NestedMap of TensorSpec, one slice's shapes and dtypes.
      layout: Stacked or Rows.
      arrays: The TensorArrays to use, in the order of spec.Flatten().
      empty: What the arrays were before anything was written.
    """
    self._spec = spec
    self._layout = layout
    self.arrays = arrays if arrays is not None else [
        self._NewArray(s) for s in spec.Flatten()
    ]
    self._empty = empty or self.arrays

  def _NewArray(self, spec):
    shape = self._layout.InsideShape(spec.shape)
    # On this device, not on that of whoever writes first.
    return tf.TensorArray(
        _WireType(spec.dtype), size=self._layout.length, element_shape=shape,
        infer_shape=self._layout.alike or shape.is_fully_defined(),
        clear_after_read=False, colocate_with_first_write_call=False)

  @classmethod
  def Of(cls, nmap, layout):
    """The slices of tensors that lie in the layout."""
    spec = nmap.Transform(
        lambda x: tf.TensorSpec(layout.SliceShape(x.shape), x.dtype))
    empty = cls(spec, layout)
    return empty.With([
        layout.Take(a, ToWire(x)) for a, x in zip(empty.arrays, nmap.Flatten())
    ])

  def With(self, arrays):
    """The same slices, held by `arrays`."""
    return Slices(self._spec, self._layout, list(arrays), self._empty)

  def Write(self, t, nmap):
    """Sets slice t.

    Args:
      t: int32 scalar.
      nmap: NestedMap of tensors that fits the spec.

    Returns:
      The new Slices.
    """
    return self.With([
        a.write(t, self._layout.Inside(ToWire(x)))
        for a, x in zip(self.arrays, nmap.Flatten())
    ])

  def Read(self, t):
    """The NestedMap of slice t."""
    values = []
    for a, s in zip(self.arrays, self._spec.Flatten()):
      x = self._layout.Outside(a.read(t))
      x.set_shape(s.shape)
      values.append(FromWire(x, s.dtype))
    return self._spec.Pack(values)

  def Join(self):
    """The NestedMap of tensors that lie in the layout."""
    return self._spec.Pack([
        FromWire(self._layout.Join(a, s.shape), s.dtype)
        for a, s in zip(self.arrays, self._spec.Flatten())
    ])

  def Detached(self):
    """The same slices, but not data-dependent on what wrote them.

    They are read after the writes, by control edges alone. `tf.gradients` would
    otherwise walk through them back into the loop, whose gradient is made
    elsewhere.
    """
    if lingvo_compat.InFunction(tf.get_default_graph()):
      return self  # A functional loop is one op, whose gradient isn't asked.
    arrays = []
    for written, empty in zip(self.arrays, self._empty):
      with tf.control_dependencies([written.flow]):
        arrays.append(empty.identity())
    return self.With(arrays)
