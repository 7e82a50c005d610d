"""Which tensors of a graph another one is made from."""

import lingvo.compat as tf

# What stands behind these gets no gradient.
_STOPS = frozenset(['StopGradient', 'PreventGradient'])
# Tensors of these may stand for floating-point ones: lists, variables.
_HANDLES = frozenset([tf.variant, tf.resource])


def Sources(tensors, differentiable=False):
  """All tensors that some tensors are computed from.

  Args:
    tensors: A list of tensors in one graph.
    differentiable: Whether to leave out what gets no gradient through them:
      what is behind a stop_gradient, an integer or a comparison.

  Returns:
    {id: tensor}, `tensors` among them.
  """
  todo, seen = list(tensors), {}
  while todo:
    x = todo.pop()
    if id(x) not in seen:
      seen[id(x)] = x
      stops = x.op.type in _STOPS or not (
          x.dtype.is_floating or x.dtype.is_complex or x.dtype in _HANDLES)
      if not (differentiable and stops):
        todo.extend(x.op.inputs)
  return seen


def Needed(tensors):
  """The operators that have to run for tensors, control edges included, a set."""
  todo, seen = [x.op for x in tensors], set()
  while todo:
    op = todo.pop()
    if op not in seen:
      seen.add(op)
      todo += [x.op for x in op.inputs] + list(op.control_inputs)
  return seen


def Trainable(tensors):
  """The trainable variables that get a gradient through some tensors, a list."""
  found = Sources(tensors, differentiable=True)
  return [v for v in tf.trainable_variables() if id(Handle(v)) in found]


def Handle(variable):
  """The tensor that stands for a variable in its graph."""
  return getattr(variable, 'handle', variable)


def Ancestors(tensors):
  """The operators that tensors are computed from, a set."""
  return {x.op for x in Sources(tensors).values()}
