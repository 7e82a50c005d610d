"""PipeliningLayer: split -> loop -> join. The only file that knows all parts."""

import collections

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np

from lingvo_gpipe import batch_norm
from lingvo_gpipe import dropout
from lingvo_gpipe import feature_extraction
from lingvo_gpipe import metadata
from lingvo_gpipe import micro_batch
from lingvo_gpipe import partition
from lingvo_gpipe import shared_weights
from lingvo_gpipe import slices
from lingvo_gpipe.feature_extraction import ToTuple
from lingvo_gpipe.stacked_recurrent import StackedRecurrent

# A stage, for people: its device name, the names of its layers, how many
# parameters it has and its share (0..1) of the cost of all stages.
StageInfo = collections.namedtuple(
    'StageInfo', ['device', 'layers', 'num_params', 'cost_share'])


class PipeliningLayer(feature_extraction.SeqLayer):
  """Layers in sequence, as a pipeline over devices.

  Drop-in for lingvo.core.gpipe.PipeliningLayer. In short:

    micro-batches = split(inputs) on the first stage's device
    for each micro-batch, overlapped:  # stacked_recurrent.py
      for k in stages: with device(k): x = cell[k](x)
    outputs = join(micro-batches) on the last stage's device

  The stages come from `cell_tpl`, one params each, or from `layers`, which are
  cut into `num_stages` of about equal cost.

  Outputs and gradients are those of the same layers run one after another on
  one device, micro-batch by micro-batch. (On the whole mini-batch at once,
  only batch normalisation and dropout can tell the difference.) The gradient of
  an embedding is a dense tensor, though: it is a sum over micro-batches.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('num_micro_batches', 1,
             'How many micro-batches the mini-batch is split into.')
    p.Define('micro_batch_size', None,
             'The size of a micro-batch, checked against the batch if given.')
    p.Define(
        'pad_batch', False,
        'Whether any batch size will do, also one that is not known while the '
        'graph is built. Micro-batches then differ in size by one at most (so '
        'that in fact nothing is padded), and there are no more than examples.')
    p.Define('batch_dim', 0, 'The batch dimension of the inputs and outputs.')
    p.Define('state_dtype', None,
             "Taken for Lingvo's sake, and unused: each tensor that travels from "
             'stage to stage keeps its own dtype.')
    p.Define('nested_map_fprop', False,
             "Whether the cells' FProp takes and returns one NestedMap.")
    p.Define('layers', [],
             'Params of layers in sequence to be cut into num_stages stages. In '
             'place of cell_tpl.')
    p.Define('num_stages', 1, 'The number of stages that `layers` are cut into.')
    p.Define(
        'input_shapes', None,
        "The shapes of the first layer's inputs, a list of lists, for the "
        "layers' costs (FPropMeta). None: layers are weighed as equal.")
    p.Define(
        'shared_weights', {},
        "Weights that several layers use: {'softmax.w': 'embedding.w'} lets the "
        'layer named softmax find in its theta, as w, that of embedding.')
    p.Define(
        'recompute', 'always',
        '`always`: the gradient runs each stage again from its input, so that '
        'only the inputs are kept. `never`: all intermediate values are kept, '
        'which is faster and takes more memory.')
    return p

  def __init__(self, params):
    self._costs = None
    super().__init__(params)
    for _, cell in self._cells:
      for layer in _Descendants(cell):
        batch_norm.Adopt(layer)
        dropout.Adopt(layer)

  def _CellParams(self):
    p = self.params
    if not p.layers:
      return p.cell_tpl
    if p.cell_tpl:
      raise ValueError(
          f'{p.name}: both `layers` ({len(p.layers)}) and `cell_tpl` '
          f'({len(p.cell_tpl)}) are set. Set `layers` to have them cut into '
          'num_stages stages, or `cell_tpl` to make the stages yourself.')
    layers = partition.Flatten(p.layers)
    names = [l.name for l in layers]
    if not all(names) or len(set(names)) < len(names):
      # Repeated layers: named by their place, which doesn't depend on the cut.
      for i, l in enumerate(layers):
        l.name = 'cell_%03d' % i
    costs = [1.] * len(layers)
    if p.input_shapes is not None:
      costs = partition.Costs(layers, *map(metadata.ToShape, p.input_shapes))
    try:
      cells = partition.Stages(layers, costs, p.num_stages)
    except ValueError as e:
      raise ValueError(f'{p.name}: {e}') from e
    self._costs = partition.StageCosts(costs, cells)
    return cells

  @property
  def stages(self):
    """A StageInfo for each stage. Unknown costs are taken from the parameters."""
    params = [
        sum(int(np.prod(v.shape.as_list())) for v in cell.vars.Flatten())
        for _, cell in self._cells
    ]
    costs = self._costs or params
    total = sum(costs) or 1
    return [
        StageInfo(device, [s.name for s in getattr(cell.params, 'sub', [])] or
                  [name], n, cost / total)
        for (name, cell), device, n, cost in zip(
            self._cells, self._devices, params, costs)
    ]

  def FProp(self, theta, *args):
    """Runs the pipeline.

    Args:
      theta: NestedMap of the weights of this layer and its children.
      *args: Tensors [..., batch, ...] with the batch at batch_dim, or None; with
        nested_map_fprop, one NestedMap of such.

    Returns:
      What the last cell returns for the whole mini-batch: a tensor, a tuple, or
      with nested_map_fprop a NestedMap.

    Raises:
      TypeError: with nested_map_fprop, a NestedMap is missing.
      ValueError: micro-batches don't make up the batch, or a cell can't be
        pipelined (stage.Stage.Trace).
    """
    p = self.params
    inputs = self._RunBefore(theta, args)
    theta = shared_weights.Share(theta, self._cells, p.shared_weights)
    if self._OneByOne():
      return self._RunInSequence(theta, inputs)
    inputs = self._Pack(p.name, inputs)
    boundaries = {0: _Template(inputs)}
    with tf.device(self._devices[0]):
      micro_batches, layout, join = self._Split(inputs)
      first_id = micro_batch.FirstId(p.num_micro_batches)
    cells = [cell for _, cell in self._cells]
    outputs, _ = StackedRecurrent(
        devices=self._devices,
        cell_fns=[self._CellFn(i, boundaries) for i in range(len(cells))],
        cell_grads=None,
        cell_outs=None,
        cell_out_grads=None,
        thetas=[theta[name] for name, _ in self._cells],
        init_states=[py_utils.NestedMap() for _ in cells],
        inputs=micro_batches,
        accumulator_layers=cells,
        recompute=p.recompute,
        first_micro_batch_id=first_id,
        layout=layout,
        zeros_for_unused=False,
        names=[f'{p.name}, stage {i} ({name})'
               for i, (name, _) in enumerate(self._cells)])
    with tf.device(self._devices[-1]):
      return self._Unpack(
          _Restore(
              outputs.Transform(join),
              boundaries[len(cells)]))

  def _OneByOne(self):
    """Whether there is nothing to overlap or recompute."""
    one_device = len(set(self._devices)) == 1
    if self.do_eval and one_device:
      return True
    return len(self._cells) == 1 and self.params.num_micro_batches == 1

  def _Pack(self, owner, values):
    """A cell's inputs or outputs as one NestedMap; None where they have it."""
    if not self.params.nested_map_fprop:
      return py_utils.NestedMap(
          {'s%d' % i: x for i, x in enumerate(ToTuple(values))})
    values = ToTuple(values)
    if len(values) != 1 or not isinstance(values[0], py_utils.NestedMap):
      raise TypeError(
          f'{owner}: with nested_map_fprop=True, one NestedMap must come in and '
          f'go out of each cell, but there is '
          f'({", ".join(type(x).__name__ for x in values)}).')
    return values[0]

  def _Unpack(self, nmap):
    """The inverse of _Pack."""
    if self.params.nested_map_fprop:
      return nmap
    values = tuple(nmap['s%d' % i] for i in range(len(nmap)))
    return values[0] if len(values) == 1 else values

  def _Split(self, nmap):
    """Splits the inputs into micro-batches.

    Args:
      nmap: NestedMap of tensors and None.

    Returns:
      (nmap without None, its tensors as StackedRecurrent takes them; their
      layout; what joins an output tensor of StackedRecurrent).
    """
    p = self.params
    sizes = {
        key: x.shape.as_list()[p.batch_dim]
        for key, x in nmap.FlattenItems() if x is not None
    }
    if not sizes:
      raise ValueError(f'{p.name}: all inputs are None.')
    if len(set(sizes.values()) - {None}) > 1:
      raise ValueError(
          f'{p.name}: the inputs have different sizes along batch_dim='
          f'{p.batch_dim}: {sizes}.')
    size = list(sizes.values())[0]
    m = p.num_micro_batches
    nmap = _Present(nmap)
    if p.pad_batch and (size is None or size % m):
      batch_size = tf.shape(nmap.Flatten()[0])[p.batch_dim]
      uneven = micro_batch.UnevenSizes(batch_size, m)
      return nmap, slices.Rows(uneven, p.batch_dim, m), lambda x: x
    micro_batch.Size(size, m, p.micro_batch_size)
    return (nmap.Transform(lambda x: micro_batch.Split(x, m, p.batch_dim)),
            slices.Stacked(m), lambda x: micro_batch.Join(x, p.batch_dim))

  def _CellFn(self, i, boundaries):
    """The cell function of stage i.

    Args:
      i: The stage.
      boundaries: {k: the template of what travels into stage k}. The cell sets
        the one after its own, so that the next one knows which inputs are None.

    Returns:
      (theta, state0, inputs) -> (outputs, extras).
    """
    name, cell = self._cells[i]

    def CellFn(theta, state0, inputs):
      del state0
      args = self._Unpack(_Restore(inputs, boundaries[i]))
      outputs = self._Pack(name, cell.FProp(theta, *ToTuple(args)))
      if i + 1 not in boundaries:
        metadata.Check(name, cell, ToTuple(args), outputs)
      boundaries[i + 1] = _Template(outputs)
      return _Present(outputs), py_utils.NestedMap()

    return CellFn


def _Descendants(layer):
  """The layer itself and all layers below it, whoever created them."""
  yield layer
  for child in py_utils.Flatten(layer.children):
    yield from _Descendants(child)


def _Present(nmap):
  """nmap without the keys whose value is None."""
  return nmap.Filter(lambda x: x is not None)


def _Template(nmap):
  """The keys of nmap, and which of them are None."""
  return nmap.Transform(lambda x: None if x is None else x.dtype)


def _Restore(nmap, template):
  """nmap with the keys of template; those it lacks are None."""
  found = dict(nmap.FlattenItems())
  return template.Pack([found.get(key) for key, _ in template.FlattenItems()])
