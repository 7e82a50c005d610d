"""What the library needs of TensorFlow's and Lingvo's insides, in one place."""

import contextlib

import lingvo.compat as tf
from lingvo.core import cluster
from lingvo.core import layers
from lingvo.core import py_utils

# pylint: disable=g-direct-tensorflow-import
from tensorflow.python.framework import func_graph
from tensorflow.python.framework import ops
# pylint: enable=g-direct-tensorflow-import


class _Scratch(func_graph.FuncGraph):
  """A graph that nobody runs."""


def ScratchGraph(name):
  """Returns a graph to trace a cell in, for its shapes alone.

  FuncGraph is the one graph that takes tensors of an outer graph and lists them; tf.function makes one too, but runs
  its own passes over it.

  Args:
    name: The graph's name, shown in TensorFlow's error texts.

  Returns:
    A graph with `captures`: pairs (outer tensor, its stand-in in the graph).
  """
  return _Scratch(name)


@contextlib.contextmanager
def GraphLoops():
  """While loops built inside are part of the graph, not functions called by it.

  TensorFlow's graph passes (kernel rewriting, fusion, layout) see the body of such a loop, which made steps a fifth
  faster where it was measured. Inside of a function there are only functional loops, so nothing changes there.

  The switch (`tf.compat.v1.disable_control_flow_v2`) is public but global; it is put back on the way out.
  """
  v1 = tf.compat.v1
  switch = v1.control_flow_v2_enabled() and not InFunction(tf.get_default_graph())
  if switch:
    v1.disable_control_flow_v2()
  try:
    yield
  finally:
    if switch:
      v1.enable_control_flow_v2()


@contextlib.contextmanager
def _Replaced(module, name, function):
  """A function of a module is another one inside."""
  original = getattr(module, name)
  setattr(module, name, function)
  try:
    yield
  finally:
    setattr(module, name, original)


def FastNorms():
  """Lingvo's norms of weights and gradients are built of Square, not of Pow, which takes many times as long on CPUs.

  Lingvo writes v**2, and relies on TensorFlow's arithmetic rewriting, which the launcher switches off.
  """
  return _Replaced(
      py_utils, 'SumSquared',
      lambda tensors: py_utils._TransformAndSum(tensors, tf.square))  # pylint: disable=protected-access


def FlopsUncounted():
  """Lingvo's convolutions don't build the two dozen operations that count their FLOPs at run time.

  They build them whether or not a layer has an accumulator for the count, twice or three times in a pipeline.
  """
  return _Replaced(layers, 'Conv2DFlops', lambda *args, **kwargs: 0)


def InFunction(graph):
  """Whether `graph` is the body of a function."""
  return graph.building_function


def IsCalled(graph):
  """Whether `graph` is the body of a function that is there to be called, which a scratch graph isn't."""
  return InFunction(graph) and not isinstance(graph, _Scratch)


def NewOps(graph):
  """Returns a function that lists the operations made since, in the loop or branch that is being built now.

  TensorFlow has no public way to tell in which loop of a graph an operation is.
  """
  start = len(graph.get_operations())
  context = graph._get_control_flow_context()  # pylint: disable=protected-access

  def List():
    return [
        op for op in graph.get_operations()[start:]
        if op._get_control_flow_context() is context]  # pylint: disable=protected-access

  return List


def ReplaceUses(old, new):
  """Has every operation that takes the tensor `old` take `new`; there is no public way to change an input."""
  for op in old.consumers():
    for i, x in enumerate(op.inputs):
      if x is old:
        op._update_input(i, new)  # pylint: disable=protected-access


# Lingvo's cluster class, to derive from. The public name, cluster_factory.Cluster, is whatever SetCluster last set.
Cluster = cluster._Cluster  # pylint: disable=protected-access


def ModelRegistry():
  """Returns Lingvo's registry of models, without the import of a model's module that goes before its public functions.

  Each of those prints a line to stderr for every module name that it tries. The import is here, not above, since it
  brings Lingvo's executors and their flags along, which only the launcher needs.
  """
  from lingvo import model_registry  # pylint: disable=g-import-not-at-top
  return model_registry._ModelRegistryHelper  # pylint: disable=protected-access


def RegisteredModels():
  """Returns {name: class} of the models registered so far; the public function first imports all of lingvo.tasks."""
  return ModelRegistry()._MODEL_PARAMS  # pylint: disable=protected-access


def FunctionGraph(op, name):
  """Returns a function that an operation calls as a graph: with operations, `inputs` and `outputs`.

  Public are only the GraphDefs of functions, without the shapes in them.

  Args:
    op: The operation.
    name: The function's name.
  """
  graph = op.graph
  function = graph._get_function(name)  # pylint: disable=protected-access
  while function is None:  # It belongs to a graph around this one.
    graph = graph.outer_graph
    function = graph._get_function(name)  # pylint: disable=protected-access
  return function.graph


def ProfilerFlops(op):
  """Returns the floating-point operations of an operation by TensorFlow's profiler, or None where it has no count.

  The public tf.compat.v1.profiler.profile takes whole graphs, prints, and leaves out what it doesn't know.

  Raises:
    ValueError, TypeError: A shape isn't known.
  """
  return ops.get_stats_for_node_def(op.graph, op.node_def, 'flops').value
