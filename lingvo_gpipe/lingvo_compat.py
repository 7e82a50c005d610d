"""What the library needs of TensorFlow's and Lingvo's insides, in one place."""

import contextlib

import lingvo.compat as tf
from lingvo.core import cluster

# pylint: disable=g-direct-tensorflow-import
from tensorflow.python.framework import func_graph
# pylint: enable=g-direct-tensorflow-import


def ScratchGraph(name):
  """Returns a graph to trace a cell in, for its shapes alone.

  FuncGraph is the one graph that takes tensors of an outer graph and lists them; tf.function makes one too, but runs
  its own passes over it.

  Args:
    name: The graph's name, shown in TensorFlow's error texts.

  Returns:
    A graph with `captures`: pairs (outer tensor, its stand-in in the graph).
  """
  return func_graph.FuncGraph(name)


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


def InFunction(graph):
  """Whether `graph` is the body of a function."""
  return graph.building_function


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
