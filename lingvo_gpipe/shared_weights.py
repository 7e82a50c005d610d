"""Weights that several layers use, in whatever stages they come to lie.

A tied embedding and softmax, say: the embedding owns the variable, on its
stage's device; the softmax reads it from its theta and creates none. Each stage
gives its part of the gradient, and TensorFlow adds them up.
"""

from lingvo.core import py_utils


def Share(theta, cells, shared):
  """Gives layers weights of other layers.

  Args:
    theta: NestedMap of the weights, by cell name.
    cells: A list of (name, layer), the cells.
    shared: {'softmax.w': 'embedding.w'}: what to set, what to set it to, each a
      layer's name (of a cell, or of a layer in a cell) and a path in its theta.

  Returns:
    theta with these entries; the argument is left as it is.

  Raises:
    ValueError: there is no such layer or weight.
  """
  if not shared:
    return theta
  theta = theta.Transform(lambda x: x)
  layers = {}
  for name, cell in cells:
    layers[name] = theta[name]
    for sub in getattr(cell.params, 'sub', []):
      layers[sub.name] = theta[name][sub.name]
  for target, source in shared.items():
    value = _Layer(layers, source)
    for key in source.split('.')[1:]:
      if not isinstance(value, py_utils.NestedMap) or key not in value:
        raise ValueError(
            f'shared_weights: there is no weight {source!r}. '
            f'{source.split(".")[0]} has '
            f'{", ".join(k for k, _ in _Layer(layers, source).FlattenItems())}.')
      value = value[key]
    _Layer(layers, target).Set('.'.join(target.split('.')[1:]), value)
  return theta


def _Layer(layers, path):
  name = path.split('.')[0]
  if name not in layers:
    raise ValueError(
        f'shared_weights: there is no layer {name!r}, as in {path!r}. The layers '
        f'are {", ".join(sorted(layers))}.')
  return layers[name]
