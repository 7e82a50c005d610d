"""What travels from stage to stage: one NestedMap, whatever a cell's FProp takes.

The loops carry tensors only, so a None among a cell's inputs or outputs is left
out on the way; a template remembers where.
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
    return py_utils.NestedMap({'s%d' % i: x for i, x in enumerate(values)})
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
  values = tuple(nmap['s%d' % i] for i in range(len(nmap)))
  return values[0] if len(values) == 1 else values


def Present(nmap):
  """nmap without the keys whose value is None."""
  return nmap.Filter(lambda x: x is not None)


def Template(nmap):
  """The keys of nmap, and which of them are None."""
  return nmap.Transform(lambda x: None if x is None else x.dtype)


def Restore(nmap, template):
  """nmap with the keys of template; those it lacks are None."""
  found = dict(nmap.FlattenItems())
  return template.Pack([found.get(key) for key, _ in template.FlattenItems()])
