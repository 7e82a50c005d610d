"""Which tensors of a graph another one is made from."""

# What stands behind these gets no gradient.
_STOPS = frozenset(['StopGradient', 'PreventGradient'])


def Sources(tensors, differentiable=False):
  """All tensors that some tensors are computed from.

  Args:
    tensors: A list of tensors in one graph.
    differentiable: Whether to leave out what is behind a stop_gradient.

  Returns:
    The set of their ids, those of `tensors` among them.
  """
  todo, seen = list(tensors), set()
  while todo:
    x = todo.pop()
    if id(x) not in seen:
      seen.add(id(x))
      if not (differentiable and x.op.type in _STOPS):
        todo.extend(x.op.inputs)
  return seen
