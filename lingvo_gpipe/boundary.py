"""What travels from stage to stage: one NestedMap, whatever a cell's FProp takes.

The loops carry tensors only, so a None among a cell's inputs or outputs is left
out on the way, where tensors have numbers for names; a template remembers what
they were.
"""

from lingvo.core import py_utils

from lingvo_gpipe.feature_extraction import ToTuple


def Pack(owner, values, nested):
  """A cell's inputs or outputs as one NestedMap; None where they have it.

  Args:
    owner: What errors call the cell.
    values: A tensor, a tuple of tensors and None; or if nested, one NestedMap.
    nested: nested_map_fprop of the pipeline.

  Raises:
    TypeError: if nested, it isn't one NestedMap.
  """
  values = ToTuple(values)
  if not nested:
    return _Numbered(values)
  if len(values) != 1 or not isinstance(values[0], py_utils.NestedMap):
    raise TypeError(
        f'{owner}: with nested_map_fprop=True, one NestedMap must come in and go '
        f'out of each cell, but there is '
        f'({", ".join(type(x).__name__ for x in values)}).')
  return values[0]


def Unpack(nmap, nested):
  """The inverse of Pack."""
  if nested:
    return nmap
  values = tuple(nmap.Flatten())
  return values[0] if len(values) == 1 else values


def Present(nmap):
  """The tensors of nmap, without None, as they travel."""
  # Not nmap.Filter, which moves up what is behind a None in a list.
  return _Numbered([x for x in nmap.Flatten() if x is not None])


def Template(nmap):
  """The structure of nmap, and what in it is None."""
  return nmap.Transform(lambda x: None if x is None else x.dtype)


def Restore(nmap, template):
  """What has the structure of template, of its tensors as they travelled."""
  tensors = iter(nmap.Flatten())
  return template.Pack(
      [None if t is None else next(tensors) for t in template.Flatten()])


def _Numbered(values):
  """A NestedMap of a list, in whose order its keys are."""
  return py_utils.NestedMap({f's{i:03d}': x for i, x in enumerate(values)})
