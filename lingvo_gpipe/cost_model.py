"""What a layer costs: FLOPs, parameters, bytes that travel and bytes that stay.

A layer is built once in a scratch graph, with its gradient (layer_graph.py), and
its operators are counted (flop_counts.py, live_bytes.py). No weight is
allocated and nothing runs, so a layer of any size takes well under a second,
and equal layers are built once.

A layer's FPropMeta is believed for the forward FLOPs where it is within a factor
of 2 of what is counted, or above where operators are there that can't be
counted. Else it is a placeholder (Lingvo's Transformer layers say 5 an element).
"""

import dataclasses
from typing import Any, Optional, Tuple

import lingvo.compat as tf
from lingvo.core import py_utils
from lingvo.core import tshape

from lingvo_gpipe import called_functions
from lingvo_gpipe import flop_counts
from lingvo_gpipe import kept_results
from lingvo_gpipe import layer_graph
from lingvo_gpipe import layer_kinds
from lingvo_gpipe import live_bytes
from lingvo_gpipe import metadata
from lingvo_gpipe.feature_extraction import ToTuple

# How far the FLOPs that FPropMeta declares may be from the count.
_BELIEVED = 2.


@dataclasses.dataclass(frozen=True)
class LayerCost:
  """The cost of a layer for one micro-batch.

  Attributes:
    name: The layer's name.
    forward_flops: Of FProp; a multiply-add is 2.
    backward_flops: Of the gradients to the weights and the inputs, without the
      forward pass that recomputation adds.
    num_params: How many weights there are, trainable or not.
    param_bytes: What they take.
    input_bytes: What comes in from the layer before.
    output_bytes: What goes out to the next one.
    kept_bytes: What the backward pass needs of the forward pass if nothing is
      recomputed: activations, the inputs included, the weights not.
    peak_bytes: The most that lives at once while the layer runs forward and
      backward, beyond the weights (live_bytes.Peak).
    product_flops: Of the products with weights, the part of forward_flops that
      recompute='selective' doesn't run again.
    product_bytes: Their results, which it keeps.
    forward_seconds: Measured, or None.
    backward_seconds: Measured, or None.
    source: `declared` (the forward FLOPs are FPropMeta's), `traced`, or `timed`.
    uncounted: Types of operators whose FLOPs aren't counted, sorted.
    outputs: What comes out: a tuple or NestedMap of tf.TensorSpec and None.
  """
  name: str
  forward_flops: float
  backward_flops: float
  num_params: int
  param_bytes: int
  input_bytes: int
  output_bytes: int
  kept_bytes: int
  peak_bytes: int
  product_flops: float = 0.
  product_bytes: int = 0
  forward_seconds: Optional[float] = None
  backward_seconds: Optional[float] = None
  source: str = 'traced'
  uncounted: Tuple[str, ...] = ()
  outputs: Any = None

  @property
  def flops(self):
    """Forward and backward."""
    return self.forward_flops + self.backward_flops


def Spec(x):
  """What an input is, as tf.TensorSpec.

  Args:
    x: A tf.TensorSpec, a shape (tshape.Shape, tf.TensorShape, list or tuple of
      numbers), taken as float32, None, or a NestedMap of these.

  Returns:
    The same structure of tf.TensorSpec and None.
  """
  if x is None or isinstance(x, tf.TensorSpec):
    return x
  if isinstance(x, py_utils.NestedMap):
    return py_utils.NestedMap({key: Spec(value) for key, value in x.items()})
  if isinstance(x, tshape.Shape):
    return tf.TensorSpec(x.ToTensorShape(), tf.float32)
  return tf.TensorSpec(x, tf.float32)


def MicroBatch(inputs, num_micro_batches, batch_dim=0):
  """What a micro-batch of a mini-batch is, the largest if they differ.

  Args:
    inputs: A list of what Spec takes, for the mini-batch.
    num_micro_batches: How many micro-batches it is split into.
    batch_dim: The dimension that is split.

  Returns:
    A tuple of structures of tf.TensorSpec and None.
  """

  def Divide(spec):
    if spec is None:
      return None
    shape = spec.shape.as_list()
    if shape[batch_dim] is not None:
      shape[batch_dim] = -(-shape[batch_dim] // num_micro_batches)
    return tf.TensorSpec(shape, spec.dtype)

  return tuple(py_utils.Transform(Divide, Spec(x)) for x in inputs)


def Trace(params, *inputs, shared=None):
  """The cost of one layer.

  Args:
    params: The layer's params.
    *inputs: What its FProp takes for one micro-batch, as Spec takes it.
    shared: {path in its theta: tf.TensorSpec} of weights that another layer
      owns.

  Returns:
    A LayerCost.

  Raises:
    ValueError: The layer can't be built, or doesn't take such inputs.
  """
  return _Trace(params, tuple(map(Spec, inputs)), shared)


def LayerCosts(layers, *inputs, shared_weights=None):
  """The costs of layers in sequence: each one's outputs are the next's inputs.

  Args:
    layers: A list of params.
    *inputs: What the first layer's FProp takes for one micro-batch, as Spec
      takes it.
    shared_weights: As in PipeliningLayer: {'softmax.w': 'embedding.w'}.

  Returns:
    A list of LayerCost.

  Raises:
    ValueError: As Trace.
  """
  found = InSequence(layers, *inputs, shared_weights=shared_weights)
  return [cost for _, _, _, cost in found]


def InSequence(layers, *inputs, shared_weights=None):
  """As LayerCosts, with what each layer is given.

  Yields:
    (number of the first layer that equals this one but for its name and has
    such inputs; inputs, a tuple of structures of tf.TensorSpec; {path in theta:
    tf.TensorSpec}, the weights that are another layer's; LayerCost).
  """
  shared = _Shared(layers, shared_weights or {})
  inputs = tuple(map(Spec, inputs))
  known = layer_kinds.Kinds()
  for i, p in enumerate(layers):
    borrowed = shared.get(p.name, {})
    found = known.Get(p, inputs, borrowed)
    if found is None:
      found = known.Add((i, _Trace(p, inputs, borrowed)), p, inputs, borrowed)
    first, cost = found
    yield first, inputs, borrowed, dataclasses.replace(cost, name=p.name)
    inputs = ToTuple(cost.outputs)


def _Shared(layers, shared_weights):
  """{layer: {path: tf.TensorSpec}}: the weights that layers take of others."""
  by_name = {p.name: p for p in layers}
  specs = {}
  found = {}
  for target, source in shared_weights.items():
    owner, _, path = source.partition('.')
    if owner not in by_name:
      raise ValueError(
          f'shared_weights: there is no layer {owner!r}, as in {source!r}. The '
          f'layers are {", ".join(by_name)}.')
    if owner not in specs:
      specs[owner] = layer_graph.Theta(by_name[owner])
    borrower, _, name = target.partition('.')
    found.setdefault(borrower, {})[name] = specs[owner].GetItem(path)
  return found


def _Trace(params, inputs, shared):
  """The LayerCost of one layer, whose inputs are tf.TensorSpec."""
  try:
    graph = layer_graph.Trace(params, inputs, shared)
  except Exception as e:
    raise ValueError(
        f'The cost of layer {params.name!r} of class {params.cls.__name__} is not '
        f'known, since it does not run on inputs {_Show(inputs)}: {e}\nWhere an '
        'input is not float32, give a tf.TensorSpec in place of its shape.'
    ) from e
  scope = called_functions.Scope(None)
  forward, uncounted = flop_counts.Count(graph.forward, scope)
  backward, uncounted_backward = flop_counts.Count(graph.backward, scope)
  uncounted |= uncounted_backward
  if graph.no_gradient:
    uncounted.add('gradient')
  declared = _Declared(params, inputs, forward, bool(uncounted))
  products = _Products(params.name, graph)
  outputs = py_utils.Transform(
      lambda x: None if x is None else tf.TensorSpec(x.shape, x.dtype),
      graph.outputs)
  forward = float(forward if declared is None else declared)
  product_flops, _ = flop_counts.Count([y.op for y in products], scope)
  return LayerCost(
      name=params.name,
      forward_flops=forward,
      backward_flops=float(backward),
      num_params=graph.num_params,
      param_bytes=graph.param_bytes,
      input_bytes=_Bytes(inputs),
      output_bytes=_Bytes(outputs),
      kept_bytes=live_bytes.Kept(graph, scope),
      peak_bytes=live_bytes.Peak(graph, scope),
      product_flops=min(float(product_flops), forward),
      product_bytes=sum(map(live_bytes.Bytes, products)),
      source='traced' if declared is None else 'declared',
      uncounted=tuple(sorted(uncounted)),
      outputs=outputs)


def _Products(name, graph):
  """The results that recompute='selective' keeps, a list of tensors."""
  results = [
      op.outputs[0] for op in graph.forward if op.type in kept_results.PRODUCTS
  ]
  if not results:
    return []
  with results[0].graph.as_default():
    return kept_results.Selection(name, results, graph.inputs).Of(results)


def _Declared(params, inputs, counted, incomplete):
  """The FLOPs that FPropMeta says, if they are to be believed; else None."""
  try:
    shapes = [
        py_utils.Transform(
            lambda x: None if x is None else metadata.ToShape(x.shape), x)
        for x in inputs
    ]
    flops = float(params.cls.FPropMeta(params.Copy(), *shapes).flops)
  except Exception:  # pylint: disable=broad-except
    return None  # It has none, or none for such shapes.
  if counted / _BELIEVED <= flops and (
      incomplete or flops <= counted * _BELIEVED):
    return flops
  return None


def _Bytes(structure):
  return sum(map(live_bytes.Bytes, layer_graph.Tensors(structure)))


def _Show(inputs):
  """'float32[8, 4], None' of a tuple of specs."""
  return ', '.join(
      'None' if x is None else f'{tf.as_dtype(x.dtype).name}{x.shape}'
      for x in py_utils.Flatten(inputs))
