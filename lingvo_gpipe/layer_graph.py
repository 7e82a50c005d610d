"""One layer alone in a graph of its own: forward, and its gradient.

`Trace` is for counting: weights are placeholders, nothing is allocated and
nothing runs. timed_costs.py builds the same graph over real variables.
"""

import concurrent.futures
import dataclasses
from typing import Any, List

import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import py_utils

from lingvo_gpipe import adoption
from lingvo_gpipe import graph_walk
from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.feature_extraction import ToTuple
from lingvo_gpipe.stage import Dense
from lingvo_gpipe.stage import Differentiable
from lingvo_gpipe.stage import Specs
from lingvo_gpipe.stage import Stage


@dataclasses.dataclass
class LayerGraph:
  """A layer's operators.

  Attributes:
    inputs: The placeholders of the inputs, a list.
    weights: The placeholders of the weights, a list.
    outputs: What FProp returns, a tuple or NestedMap of tensors and None.
    output_gradients: The placeholders of the gradients of the outputs.
    input_gradients: Tensors, the gradients of the inputs that have one.
    weight_gradients: Tensors, likewise.
    forward: The operators that the outputs and gradients need, in the order of
      their creation.
    backward: The operators that only the gradients need, likewise.
    num_params: The number of weights, trainable or not.
    param_bytes: What they take.
    theta: NestedMap of tf.TensorSpec, the weights.
    no_gradient: The error text where an operator has no gradient, or None.
  """
  inputs: List[Any]
  weights: List[Any]
  outputs: Any
  output_gradients: List[Any]
  input_gradients: List[Any]
  weight_gradients: List[Any]
  forward: List[Any]
  backward: List[Any]
  num_params: int
  param_bytes: int
  theta: Any
  no_gradient: Any


def Alone(fn):
  """Calls fn where it sees nothing of the model that is being built.

  Lingvo keeps the layers under construction, variable scopes, step seeds and
  contexts in thread-local stacks, and TensorFlow its default graph: in a thread
  of its own, fn finds all of them empty and leaves nothing behind. The cluster,
  which says whether this is training, is handed on.

  Args:
    fn: A function without arguments.

  Returns:
    What fn returns.
  """
  cluster = cluster_factory.Current()

  def Run():
    with cluster, tf.Graph().as_default():
      return fn()

  with concurrent.futures.ThreadPoolExecutor(1) as thread:
    return thread.submit(Run).result()


def Create(params):
  """The layer as a pipeline would have it, in the current graph."""
  layer = params.Copy().Set(name=params.name or 'layer').Instantiate()
  adoption.Adopt(layer)
  return layer


def Forward(layer, theta, inputs, global_step):
  """Runs a layer as a pipeline does.

  Args:
    layer: The layer.
    theta: NestedMap of its weights.
    inputs: A tuple, the arguments of its FProp.
    global_step: int64 scalar.

  Returns:
    (outputs, a tuple or NestedMap; a list of tensors, what it accumulates).
  """
  stage = Stage(
      layer.params.name, '',
      lambda theta, state0, inputs: (layer.FProp(theta, *inputs), None), theta,
      py_utils.NestedMap())
  outputs, _ = stage.Call(
      theta, stage.state0, inputs, tf.constant(0, tf.int64), global_step)
  if not isinstance(outputs, py_utils.NestedMap):
    outputs = ToTuple(outputs)
  accumulated = [
      a.GetValue() for a in py_utils.Flatten(layer.accumulators.Flatten())
  ]
  return outputs, accumulated


def Tensors(structure):
  """The tensors or specs of a structure, without None, a list."""
  return [x for x in py_utils.Flatten(structure) if x is not None]


def Gradients(outputs, output_gradients, xs):
  """The gradients of xs.

  Args:
    outputs: A list of tensors.
    output_gradients: Their gradients.
    xs: A list of tensors.

  Returns:
    (a list of tensors, and None where there is no gradient; the error text if an
    operator has none, else None). An embedding's is dense, as in a pipeline,
    where it is a sum over micro-batches.
  """
  if not outputs or not xs:
    return [None] * len(xs), None
  try:
    gradients = tf.gradients(outputs, xs, grad_ys=output_gradients)
  except LookupError as e:
    return [None] * len(xs), str(e)
  return Dense(gradients), None


def Stand(spec):
  """A placeholder for a tensor or spec; None for None."""
  return None if spec is None else tf.placeholder(spec.dtype, spec.shape)


def Theta(params):
  """NestedMap of tf.TensorSpec: the weights of a layer of these params."""
  return Alone(lambda: Specs(Create(params).theta))


def Trace(params, inputs, shared=None):
  """Builds a layer's operators in a scratch graph.

  Args:
    params: The layer's params.
    inputs: A tuple of structures of tf.TensorSpec and None, FProp's arguments.
    shared: {path in theta: tf.TensorSpec} of weights that are another layer's.

  Returns:
    A LayerGraph.
  """

  def Build():
    layer = Create(params)
    theta = Specs(layer.theta)
    for path, spec in (shared or {}).items():
      theta.Set(path, spec)
    weights = layer.vars.Flatten()
    # In a function's graph loops are functions, whatever TensorFlow's switch.
    with lingvo_compat.ScratchGraph('costs').as_default() as graph:
      found = _Operators(graph, layer, theta, inputs)
    return LayerGraph(
        num_params=sum(v.shape.num_elements() for v in weights),
        param_bytes=sum(v.shape.num_elements() * v.dtype.size for v in weights),
        theta=theta, **found)

  return Alone(Build)


def _Operators(graph, layer, theta, inputs):
  """The fields of a LayerGraph that are about operators, a dict."""
  theta = theta.Transform(Stand)
  inputs = tuple(py_utils.Transform(Stand, x) for x in inputs)
  outputs, accumulated = Forward(
      layer, theta, inputs, tf.placeholder(tf.int64, []))
  ys = [y for y in Tensors(outputs) if Differentiable(y)]
  existing = list(graph.get_operations())
  output_gradients = [Stand(y) for y in ys]
  groups = [[x for x in Tensors(group) if Differentiable(x)]
            for group in (inputs, theta)]
  gradients, no_gradient = Gradients(
      ys, output_gradients, groups[0] + groups[1])
  of_inputs = Tensors(gradients[:len(groups[0])])
  of_weights = Tensors(gradients[len(groups[0]):])
  needed = graph_walk.Ancestors(
      Tensors(outputs) + accumulated + of_inputs + of_weights)
  created = set(existing)
  return dict(
      inputs=Tensors(inputs),
      weights=Tensors(theta),
      outputs=outputs,
      output_gradients=output_gradients,
      input_gradients=of_inputs,
      weight_gradients=of_weights,
      forward=[op for op in existing if op in needed],
      backward=[
          op for op in graph.get_operations()
          if op in needed and op not in created
      ],
      no_gradient=no_gradient)
