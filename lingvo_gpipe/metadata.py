"""FPropMeta: what a layer says of its shapes, held against what it does."""

import lingvo.compat as tf
from lingvo.core import py_utils
from lingvo.core import tshape


def ToShape(shape):
  """A tshape.Shape of a list, tuple or tf.TensorShape; None stays None."""
  if shape is None or isinstance(shape, tshape.Shape):
    return shape
  return tshape.Shape(tf.TensorShape(shape).as_list())


def Check(name, cell, args, outputs):
  """Checks a cell's outputs against what its FPropMeta says, if it has one.

  Args:
    name: The cell's name.
    cell: The layer.
    args: A tuple of what its FProp got.
    outputs: NestedMap of what it gave.

  Raises:
    ValueError: there is another number of outputs, or one of another shape.
  """
  try:
    shapes = py_utils.Transform(
        lambda x: None if x is None else ToShape(x.shape), args)
    said = py_utils.Flatten(cell.FPropMeta(cell.params, *shapes).out_shapes)
  except Exception:  # pylint: disable=broad-except
    return  # Metadata are not needed; what can't be had for these shapes isn't.
  found = outputs.FlattenItems()
  if len(said) != len(found):
    raise ValueError(
        f'{name}: FProp gives {len(found)} outputs, but FPropMeta says '
        f'{len(said)}. Mend FPropMeta, or remove it: a pipeline finds shapes by '
        'itself.')
  for (key, x), shape in zip(found, said):
    if x is None and shape is None:
      continue
    if x is None or shape is None or not x.shape.is_compatible_with(
        shape.ToTensorShape()):
      raise ValueError(
          f'{name}: output {key} of FProp is '
          f'{"None" if x is None else x.shape}, but FPropMeta says {shape}. Mend '
          'FPropMeta, or remove it: a pipeline finds shapes by itself.')
