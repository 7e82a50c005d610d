"""The functions that operators call: which, and how often (loops, branches)."""

import dataclasses
import math
from typing import Optional

import lingvo.compat as tf
import numpy as np

from lingvo_gpipe import graph_walk
from lingvo_gpipe import lingvo_compat

_CALLS = frozenset(['PartitionedCall', 'StatefulPartitionedCall'])
_LOOPS = frozenset(['While', 'StatelessWhile'])
_BRANCHES = {
    'If': ('then_branch', 'else_branch'),
    'StatelessIf': ('then_branch', 'else_branch'),
    'Case': ('branches',),
    'StatelessCase': ('branches',),
}
# (distance to the limit, step) -> iterations.
_UNTIL = lambda distance, step: math.ceil(distance / step)
_THROUGH = lambda distance, step: math.floor(distance / step) + 1
_COMPARISONS = {
    'Less': _UNTIL,
    'LessEqual': _THROUGH,
    'Greater': _UNTIL,
    'GreaterEqual': _THROUGH,
}
# Pass their input on.
_SAME = frozenset(['Identity', 'Cast', 'StopGradient', 'EnsureShape'])


class Scope:
  """A graph, and where what it is called with comes from.

  Attributes:
    graph: A graph.
  """

  def __init__(self, graph, arguments=None):
    """Constructor.

    Args:
      graph: A graph.
      arguments: {name of a placeholder in it: (the caller's Scope, the caller's tensor)}.
    """
    self.graph = graph
    self._arguments = arguments or {}
    self._loops = {}
    self._calls = {}

  @property
  def operators(self):
    """The operators that a function's outputs need, in order of creation."""
    needed = graph_walk.Ancestors(self.graph.outputs)
    return [op for op in self.graph.get_operations() if op in needed]

  def Constant(self, tensor):
    """The value of a tensor that doesn't depend on data, or None."""
    tensor = Source(tensor)
    value = tf.get_static_value(tensor)
    if value is not None:
      return value
    if tensor.op.name in self._arguments:
      scope, outer = self._arguments[tensor.op.name]
      return scope.Constant(outer)
    if tensor.op.type in _LOOPS:
      return self.Loop(tensor.op).Final(tensor.value_index)
    if tensor.op.type in _CALLS:
      body = self.Calls(tensor.op)[0].body
      return body.Constant(body.graph.outputs[tensor.value_index])
    return None

  def Loop(self, op):
    """The _Loop of a While operator."""
    if op.name not in self._loops:
      self._loops[op.name] = _Loop(op, self)
    return self._loops[op.name]

  def Calls(self, op):
    """The functions that an operator calls, a list of Call.

    Of several, it chooses one.
    """
    if op.name not in self._calls:
      self._calls[op.name] = _Calls(op, self)
    return self._calls[op.name]


def AllOperators(graph):
  """(name, type) of each operator of a graph and of all functions in it."""
  definition = graph.as_graph_def()
  nodes = list(definition.node)
  for function in definition.library.function:
    nodes += function.node_def
  return [(n.name, n.op) for n in nodes]


def Source(tensor):
  """The tensor that this one is a mere copy of."""
  while tensor.op.type in _SAME:
    tensor = tensor.op.inputs[0]
  return tensor


@dataclasses.dataclass(frozen=True)
class Call:
  """A function that an operator calls.

  Attributes:
    body: The function's Scope.
    times: How often it runs, or None where that isn't known.
  """
  body: Scope
  times: Optional[int]


def _Calls(op, scope):
  """Scope.Calls."""
  if op.type in _LOOPS:
    loop = scope.Loop(op)
    return [Call(loop.body, loop.times)]
  inputs = list(op.inputs)
  if op.type in _CALLS:
    names = _Names(op, 'f')
  elif op.type in _BRANCHES:
    inputs = inputs[1:]
    names = [n for a in _BRANCHES[op.type] for n in _Names(op, a)]
  else:
    return []
  return [Call(_Body(op, name, inputs, scope), 1) for name in names]


def _Names(op, attribute):
  """The names of the functions in an attribute, a list."""
  functions = op.get_attr(attribute)
  if not isinstance(functions, list):
    functions = [functions]
  return [f.name for f in functions]


def _Body(op, name, inputs, scope):
  graph = lingvo_compat.FunctionGraph(op, name)
  return Scope(graph, {
      argument.op.name: (scope, x) for argument, x in zip(graph.inputs, inputs)
  })


class _Loop:
  """A functional while loop.

  Attributes:
    body: The Scope of its body; only what no iteration changes is known there.
    times: How often the body runs, or None.
  """

  def __init__(self, op, scope):
    self._op = op
    self._scope = scope
    graphs = []
    for attribute in ('body', 'cond'):
      name, = _Names(op, attribute)
      graphs.append(lingvo_compat.FunctionGraph(op, name))
    self._body, self._cond = graphs
    fixed = [
        i for i, out in enumerate(self._body.outputs)
        if Source(out).name == self._body.inputs[i].name
    ]
    self.body, self._cond_scope = [
        Scope(g, {g.inputs[i].op.name: (scope, op.inputs[i]) for i in fixed})
        for g in graphs
    ]
    limits = self._Limits()
    known = [times for _, times in limits if times is not None]
    self.times = min(known) if known else self._Rows([i for i, _ in limits])

  def Final(self, index):
    """The last value of a loop variable that counts iterations; else None."""
    start = self._scope.Constant(self._op.inputs[index])
    step = self._Step(index)
    if start is None or step is None or self.times is None:
      return None
    return np.asarray(start + self.times * step)

  def _Limits(self):
    """Of the comparisons in the condition: (loop variable, iterations or None)."""
    found = []
    stack = [self._cond.outputs[0]]
    while stack:
      op = Source(stack.pop()).op
      if op.type == 'LogicalAnd':
        stack += list(op.inputs)
      elif op.type in _COMPARISONS:
        variable, limit = op.inputs
        index = _Index(self._cond.inputs, Source(variable))
        if index is not None and self._Step(index):
          found.append((index, self._Times(op.type, index, limit)))
    return found

  def _Times(self, comparison, index, limit):
    """The iterations until a loop variable is at a limit, or None."""
    start = self._scope.Constant(self._op.inputs[index])
    limit = self._cond_scope.Constant(limit)
    step = self._Step(index)
    towards = comparison.startswith('Less') == (step > 0)
    if start is None or limit is None or not towards:
      return None
    return max(0, _COMPARISONS[comparison](limit - start, step))

  def _Step(self, index):
    """What an iteration adds to a loop variable, or None."""
    op = Source(self._body.outputs[index]).op
    if op.type not in ('Add', 'AddV2', 'Sub'):
      return None
    a, b = op.inputs
    variable = self._body.inputs[index].name
    if Source(a).name != variable:
      if op.type == 'Sub' or Source(b).name != variable:
        return None
      b = a
    step = self.body.Constant(b)
    return -step if step is not None and op.type == 'Sub' else step

  def _Rows(self, variables):
    """How many rows the loop takes, one an iteration, from what it is given.

    lingvo.core.recurrent stops where there is nothing but padding, which only
    the data can tell; it is taken to have none.

    Args:
      variables: The loop variables that it compares with a limit.

    Returns:
      A number, or None.
    """
    counters = [self._body.inputs[i] for i in variables]
    rows = [
        op.inputs[0].shape[0]
        for op in self._body.get_operations()
        if op.type in ('Gather', 'GatherV2', 'ResourceGather') and
        _Index(counters, Source(op.inputs[1])) is not None and
        _Index(self._body.inputs, Source(op.inputs[0])) is not None
    ]
    rows = [r for r in rows if r is not None]
    return min(rows) if rows else None


def _Index(tensors, tensor):
  """The place of a tensor in a list, or None."""
  for i, x in enumerate(tensors):
    if x.name == tensor.name:
      return i
  return None
