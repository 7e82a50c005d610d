"""Memory of a layer's forward pass and gradient, read from their operators."""

import lingvo.compat as tf

from lingvo_gpipe import flop_counts

# The output is the input's memory under another name. IdentityN: each is.
_ALIASES = frozenset("""
AssertShapeMatch CheckNumerics EnsureShape ExpandDims Identity IdentityN
PreventGradient Reshape Snapshot Squeeze StopGradient
""".split())
# Want to know a tensor's shape, not its values.
_SHAPE_ONLY = frozenset(
    ['OnesLike', 'Rank', 'Shape', 'ShapeN', 'Size', 'ZerosLike'])
# Write into an input that isn't used any more.
_IN_PLACE = flop_counts.ELEMENTWISE | {'AddN', 'Softmax'}
# Lists that a loop appends to or fills: the place of the new element.
_LIST_ELEMENT = {'TensorListPushBack': 1, 'TensorListSetItem': 2}


def Bytes(x, scope=None):
  """The bytes of a tensor or spec; 0 where its shape isn't known.

  Args:
    x: A tensor, or a tf.TensorSpec.
    scope: The called_functions.Scope of a tensor's graph: a list that a loop has
      filled is as large as its elements.

  Returns:
    A number.
  """
  dtype = tf.as_dtype(x.dtype)
  if dtype == tf.variant and scope is not None:
    return _ListBytes(x, scope)
  return (tf.TensorShape(x.shape).num_elements() or 0) * dtype.size


def _ListBytes(x, scope):
  calls = scope.Calls(x.op)
  if len(calls) != 1:
    return 0
  made = calls[0].body.graph.outputs[x.value_index]
  if made.op.type not in _LIST_ELEMENT:
    return 0
  element = made.op.inputs[_LIST_ELEMENT[made.op.type]]
  return Bytes(element) * (calls[0].times or 1)


def _Storage(x):
  """The tensor in whose memory x lies."""
  while x.op.type in _ALIASES:
    x = x.op.inputs[x.value_index if x.op.type == 'IdentityN' else 0]
  return x


def _Storages(tensors):
  """The storages of tensors, each once, a dict by name."""
  return {s.name: s for s in map(_Storage, tensors)}


def _Owned(storages, graph):
  """Those of the storages that are neither weights nor constants."""
  weights = _Storages(graph.weights)
  return {
      key: s for key, s in storages.items()
      if key not in weights and s.op.type != 'Const'
  }


def Kept(graph, scope):
  """The bytes that the gradient needs of the forward pass.

  Args:
    graph: A layer_graph.LayerGraph.
    scope: The called_functions.Scope of its operators.

  Returns:
    The inputs and each tensor of the forward pass that an operator of the
    gradient takes, each once; no weights and no constants.
  """
  forward = set(graph.forward)
  taken = [
      x for op in graph.backward if op.type not in _SHAPE_ONLY
      for x in op.inputs if x.op in forward
  ]
  kept = _Owned(_Storages(graph.inputs + taken), graph)
  return sum(Bytes(s, scope) for s in kept.values())


def Peak(graph, scope):
  """The most bytes that live at once, beyond the weights.

  Operators run in the order of their creation, a tensor lives from the operator
  that makes it to the last that takes it, and elementwise operators write over
  an input that isn't needed any more. The inputs live all the time, outputs until
  the forward pass ends or the gradient has taken them, the gradient of a weight
  only until the next operator: it is added to those of the micro-batches before.

  Args:
    graph: A layer_graph.LayerGraph.
    scope: The called_functions.Scope of its operators.

  Returns:
    A number.
  """
  outputs = [x for x in tf.nest.flatten(graph.outputs) if x is not None]
  inputs = _Owned(_Storages(graph.inputs), graph)
  order = [op for op in graph.forward if op.type != 'Placeholder']
  end_of_forward = len(order) - 1
  order += graph.backward
  ends = {key: len(order) for key in _Storages(graph.input_gradients)}
  for key in _Storages(outputs):
    ends.setdefault(key, end_of_forward)
  start = sum(Bytes(s, scope) for s in inputs.values())
  return start + _Peak(order, scope, ends, set())


def _Peak(order, scope, ends, excluded):
  """The most bytes that operators hold at once.

  Args:
    order: A list of tf.Operation.
    scope: The called_functions.Scope of their graph.
    ends: {name of a storage: the index in order of the last use that isn't by an
      operator in order}.
    excluded: Names of storages that are counted elsewhere.

  Returns:
    A number.
  """
  ends = dict(ends)
  for i, op in enumerate(order):
    for key in _Storages(op.inputs):
      ends[key] = max(i, ends.get(key, 0))
  # By index and not by use: nothing takes an output at the end of the forward pass.
  ending = {}
  for key, end in ends.items():
    ending.setdefault(end, []).append(key)
  sizes = {}  # Of what lives.
  total = most = 0
  for i, op in enumerate(order):
    dying = [key for key in _Storages(op.inputs) if ends[key] == i]
    made = {} if op.type in _ALIASES or op.type == 'Const' else {
        x.name: Bytes(x, scope) for x in op.outputs
        if x.name not in excluded
    }
    new = sum(made.values())
    if op.type in _IN_PLACE and any(sizes.get(key) == new for key in dying):
      inner = 0
      new_at_once = 0
    else:
      inner = _InnerPeak(op, scope)
      new_at_once = new
    most = max(most, total + new_at_once + inner)
    sizes.update(made)
    total += new
    for key in ending.pop(i, []) + [k for k in made if k not in ends]:
      total -= sizes.pop(key, 0)
  return most


def _InnerPeak(op, scope):
  """What the functions that an operator calls hold beyond what goes in and out."""
  return max([0] + [
      _Peak(call.body.operators, call.body, {},
            set(_Storages(list(call.body.graph.inputs) +
                          list(call.body.graph.outputs))))
      for call in scope.Calls(op)
  ])
