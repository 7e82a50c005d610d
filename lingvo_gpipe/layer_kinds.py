"""Layers that differ in nothing but their names: what holds for one holds for all."""


class Kinds:
  """What was found out about layers, to be had for all of the same kind."""

  def __init__(self):
    self._known = []  # (params, given, value).

  def Get(self, params, *given):
    """The value added for a layer like this one and the same `given`, or None.

    Args:
      params: The layer's params; their name doesn't matter.
      *given: What else the value depends on.
    """
    # Layers of a kind mostly follow one another.
    for other, others, value in reversed(self._known):
      if given == others and _SameButName(params, other):
        return value
    return None

  def Add(self, value, params, *given):
    """Adds a value for layers like this one; returns it."""
    self._known.append((params, given, value))
    return value


def _SameButName(p, q):
  if p.cls is not q.cls:
    return False
  ours, theirs = dict(p.IterParams()), dict(q.IterParams())
  return ours.keys() == theirs.keys() and all(
      key == 'name' or value == theirs[key] for key, value in ours.items())
