"""Selective recomputation: the results that are kept, put in place again.

Products with weights (convolutions, projections) take nearly all of a cell's
time but only a part of the memory of its intermediate values. With
recompute='selective' the forward pass keeps their results, and the gradient
runs the cell again with these in place of the products, which TensorFlow then
drops from the graph, as nothing needs them. A product of two activations
(attention's logits, say) is large and cheap: it is recomputed.
"""

import contextlib

import lingvo.compat as tf

from lingvo_gpipe import lingvo_compat

PRODUCTS = frozenset([
    'Conv2D', 'Conv3D', 'DepthwiseConv2dNative', 'MatMul', 'BatchMatMul',
    'BatchMatMulV2', 'BatchMatMulV3', 'Einsum'
])


@contextlib.contextmanager
def Products():
  """Finds the products made inside.

  Yields:
    A list, filled on leaving with their results in the order of creation. Those
    inside a loop or branch of the cell's own aren't among them: their values
    can't be had outside of it.
  """
  results = []
  new_ops = lingvo_compat.NewOps(tf.get_default_graph())
  yield results
  results += [op.outputs[0] for op in new_ops() if op.type in PRODUCTS]


class Selection:
  """Which of a cell's products are kept.

  Attributes:
    specs: The TensorSpecs of their results, a list.
  """

  def __init__(self, name, products, activations):
    """Constructor.

    Args:
      name: What errors call the cell.
      products: The results of its products where it was traced.
      activations: The inputs and states in that graph.
    """
    self._name = name
    varying = _DependentOn(activations)
    self._is_kept = [
        not all(id(x) in varying for x in y.op.inputs) for y in products
    ]
    self.specs = [tf.TensorSpec(x.shape, x.dtype) for x in self.Of(products)]

  def Of(self, products):
    """The kept ones among the products of another call of the cell."""
    if len(products) != len(self._is_kept):
      raise ValueError(
          f'{self._name}: the cell has {len(self._is_kept)} products where it is '
          f'traced and {len(products)} in the loop. With recompute="selective" '
          'its FProp must make the same graph each time it is called.')
    return [y for y, kept in zip(products, self._is_kept) if kept]


def Replace(results, kept):
  """Has whatever uses `results` use `kept` instead.

  Args:
    results: A list of tensors in the default graph.
    kept: As many, with the same values.
  """
  for old, new in zip(results, kept):
    lingvo_compat.ReplaceUses(old, new)


def _DependentOn(tensors):
  """The ids of all tensors of the graph that depend on any of `tensors`."""
  found = {id(x) for x in tensors}
  for op in tf.get_default_graph().get_operations():
    if any(id(x) in found for x in op.inputs):
      found.update(id(y) for y in op.outputs)
  return found
