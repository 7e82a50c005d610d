"""PipeliningLayer: split -> loop -> join. The only file that knows all parts."""

import collections

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np

from lingvo_gpipe import adoption
from lingvo_gpipe import balance
from lingvo_gpipe import boundary
from lingvo_gpipe import cuts
from lingvo_gpipe import feature_extraction
from lingvo_gpipe import loss as loss_lib
from lingvo_gpipe import metadata
from lingvo_gpipe import micro_batch
from lingvo_gpipe import partition
from lingvo_gpipe import shared_weights
from lingvo_gpipe import slices
from lingvo_gpipe.feature_extraction import ToTuple
from lingvo_gpipe.fill_drain import RECOMPUTE_MODES
from lingvo_gpipe.schedule import SCHEDULES
from lingvo_gpipe.stacked_loss import StackedLoss
from lingvo_gpipe.stacked_recurrent import LeaveStepSeed
from lingvo_gpipe.stacked_recurrent import StackedRecurrent
from lingvo_gpipe.stage import CurrentStepSeed

# A stage, for people: its device name, the names of its layers, how many
# parameters it has, its share (0..1) of the cost of all stages, and this cost,
# FLOPs or seconds for a micro-batch (p.cost says which), None if not known.
StageInfo = collections.namedtuple(
    'StageInfo', ['device', 'layers', 'num_params', 'cost_share', 'cost'])


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
        "The first layer's inputs for the mini-batch, for the layers' costs: a "
        'list with a shape each (a list), or a tf.TensorSpec where it is not '
        'float32, or None; with nested_map_fprop, one NestedMap of such. None: '
        'layers are weighed as equal.')
    p.Define(
        'cost', 'flops',
        'What the stages are balanced by. `flops`: the operations of each '
        'layer, forward and backward (cost_model.py). `time`: how long it takes '
        "on the first stage's device, measured (timed_costs.py).")
    p.Define(
        'cost_cache', None,
        'With cost=`time`: a file that keeps measured times, so that the next '
        'run takes the same ones.')
    p.Define(
        'partition', 'min_max',
        'How `layers` are cut: `min_max`, such that no other cut has a smaller '
        "largest stage; `least_variance`, the paper's rule; `histogram`, "
        "Lingvo's; or a list of the first layer of each stage but the first, "
        'counted from 0.')
    p.Define(
        'shared_weights', {},
        "Weights that several layers use: {'softmax.w': 'embedding.w'} lets the "
        'layer named softmax find in its theta, as w, that of embedding.')
    p.Define(
        'recompute', 'always',
        '`always`: the gradient runs each stage again from its input, so that '
        'only the inputs are kept. `except_last`: but not for the last '
        'micro-batch, whose gradient comes first. `selective`: the results of '
        'products with weights are kept too, and not computed again. `never`: '
        'all intermediate values are kept, which is faster and takes more '
        'memory.')
    p.Define('swap_memory', False,
             'Whether what `never` keeps on a GPU waits in host memory. (With '
             '1f1b nothing is kept for long.)')
    p.Define(
        'schedule', 'gpipe',
        '`gpipe`: all micro-batches go forward, then all go back. `1f1b`: the '
        'gradient of each is taken as soon as it is through, which `FPropLoss` '
        'alone can do, as it takes the loss in the same loop. With it the last '
        'stage never recomputes.')
    p.Define(
        'in_flight', None,
        'With 1f1b, how many micro-batches are under way at most; memory grows '
        'with it. None: the number of stages and one more.')
    return p

  def __init__(self, params):
    self._costs = self._imbalance = None
    _CheckChoices(params)
    super().__init__(params)
    for _, cell in self._cells:
      adoption.Adopt(cell)

  def _CellParams(self):
    p = self.params
    if not p.layers:
      return p.cell_tpl
    if p.cell_tpl:
      raise ValueError(
          f'{p.name}: both `layers` ({len(p.layers)}) and `cell_tpl` '
          f'({len(p.cell_tpl)}) are set. Set `layers` to have them cut into '
          'num_stages stages, or `cell_tpl` to make the stages yourself.')
    layers = partition.NamedLayers(p.layers)
    try:
      costs = balance.LayerCosts(p, layers, self.cluster)
      cut = partition.Partition(costs, p.num_stages, p.partition)
      best = cut if p.partition == 'min_max' else partition.Partition(
          costs, p.num_stages)
    except ValueError as e:
      raise ValueError(f'{p.name}: {e}') from e
    self._costs = partition.StageCosts(costs, cut)
    if p.input_shapes is not None and p.num_stages > 1:
      self._imbalance = (
          cuts.Imbalance(self._costs),
          cuts.Imbalance(partition.StageCosts(costs, best)))
    return partition.Stages(layers, cut)

  @property
  def stages(self):
    """A StageInfo for each stage. Unknown costs are taken from the parameters."""
    params = [
        sum(int(np.prod(v.shape.as_list())) for v in cell.vars.Flatten())
        for _, cell in self._cells
    ]
    costs = self._costs or params
    known = self._imbalance is not None
    total = sum(costs) or 1
    return [
        StageInfo(device, [s.name for s in getattr(cell.params, 'sub', [])] or
                  [name], n, cost / total, cost if known else None)
        for (name, cell), device, n, cost in zip(
            self._cells, self._devices, params, costs)
    ]

  @property
  def imbalance(self):
    """(that of the stages' costs, that of the best cut's); see cuts.Imbalance.

    None where costs aren't known.
    """
    return self._imbalance

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
      ValueError: micro-batches don't make up the batch, a cell can't be
        pipelined (stage.Stage.Trace), or the schedule is `1f1b` in training.
    """
    p = self.params
    if self.takes_loss_inside:
      raise ValueError(
          f'{p.name}: schedule="1f1b" takes the loss in the same loop, but FProp '
          'knows of no loss. Call FPropLoss, as lingvo_gpipe.PipelinedTask does, '
          'or set schedule="gpipe".')
    inputs = self._RunBefore(theta, args)
    theta = shared_weights.Share(theta, self._cells, p.shared_weights)
    if self._OneByOne():
      seed = CurrentStepSeed()
      outputs = self._RunInSequence(theta, inputs)
      LeaveStepSeed(seed)  # As the loop does it.
      return outputs
    common, _, join, template = self._Common(theta, inputs)
    outputs, _ = StackedRecurrent(
        cell_grads=None,
        cell_outs=None,
        cell_out_grads=None,
        seed_by_layer=False,
        init_states=[py_utils.NestedMap() for _ in self._cells],
        swap_memory=p.swap_memory,
        zeros_for_unused=False,
        **common)
    with tf.device(self._devices[-1]):
      outputs = boundary.Restore(outputs.Transform(join), template())
      return boundary.Unpack(outputs, p.nested_map_fprop)

  def FPropLoss(self, theta, metrics_fn, metrics_theta, targets, *args,
                terms=None, gradient_scale=None):
    """Runs the pipeline and takes the loss of what comes out.

    With p.schedule `1f1b` the loss and its gradient are taken micro-batch by
    micro-batch, in the loop. The numbers are those of metrics_fn on the whole
    mini-batch.

    Args:
      theta: NestedMap of the weights of this layer and its children.
      metrics_fn: (metrics_theta, outputs, targets) -> {name: (value, weight)}:
        of what the pipeline gives for some or all examples, and their targets,
        the metrics, scalars: a mean and the weight of what it is the mean of.
        Weights depend on targets alone. One metric is named `loss`.
      metrics_theta: NestedMap of the weights that metrics_fn uses.
      targets: NestedMap of tensors [..., batch, ...] with the batch at
        batch_dim, or None. With 1f1b they get no gradient.
      *args: As in FProp.
      terms: {name: factor}: the metrics that are added up as the loss, each
        times its factor. None: `loss` alone.
      gradient_scale: float32 scalar, or None: with 1f1b, what the loss is going
        to be multiplied by before its gradient is asked (loss_scaling.py).

    Returns:
      {name: (value, weight)} for the whole mini-batch, float32 scalars; `loss`
      is the sum of the terms. With 1f1b only `loss` has a gradient.

    Raises:
      TypeError: see FProp.
      ValueError: see FProp; or there is no metric of a term's name, or with
        1f1b a weight depends on the outputs, or a target on a trainable
        variable.
    """
    p = self.params
    terms = terms or {'loss': 1.}
    if not self.takes_loss_inside:
      outputs = self.FProp(theta, *args)
      with tf.device(self._devices[-1]):
        return loss_lib.Loss(metrics_fn, metrics_theta, terms).Whole(
            outputs, targets)
    loss_lib.CheckTargets(p.name, targets)
    inputs = self._RunBefore(theta, args)
    theta = shared_weights.Share(theta, self._cells, p.shared_weights)
    common, split, _, template = self._Common(theta, inputs)
    targets_template = boundary.Template(targets)

    def MetricsFn(theta, outputs, targets):
      outputs = boundary.Restore(outputs, template())
      return metrics_fn(
          theta, boundary.Unpack(outputs, p.nested_map_fprop),
          boundary.Restore(targets, targets_template))

    with tf.device(self._devices[-1]):
      targets = split(targets)
    return StackedLoss(
        targets=targets,
        loss=loss_lib.Loss(MetricsFn, metrics_theta, terms, gradient_scale),
        in_flight=p.in_flight or len(self._cells) + 1,
        **common)

  @property
  def takes_loss_inside(self):
    """Whether FPropLoss takes the loss micro-batch by micro-batch."""
    return (self.params.schedule == '1f1b' and not self.do_eval and
            not self._OneByOne())

  def _Common(self, theta, inputs):
    """What StackedRecurrent and StackedLoss are given alike.

    Args:
      theta: NestedMap of the weights of this layer and its children.
      inputs: The first cell's inputs, a tuple.

    Returns:
      (the arguments, a dict; a function that splits a NestedMap into
      micro-batches; what joins an output tensor; a function that gives, once
      the cells were called, the template of the outputs).
    """
    p = self.params
    if py_utils.GetGlobalStep() is None:  # A layer on its own, without a task.
      py_utils.GetOrCreateGlobalStepVar()
    inputs = boundary.Pack(p.name, inputs, p.nested_map_fprop)
    boundaries = {0: boundary.Template(inputs)}
    with tf.device(self._devices[0]):
      split, layout, join = self._Splitting(inputs)
      inputs = split(inputs)
    num = len(self._cells)
    common = dict(
        devices=self._devices,
        cell_fns=[self._CellFn(i, boundaries) for i in range(num)],
        thetas=[theta[name] for name, _ in self._cells],
        inputs=inputs,
        layout=layout,
        accumulator_layers=[cell for _, cell in self._cells],
        recompute=p.recompute,
        names=[f'{p.name}, stage {i} ({name})'
               for i, (name, _) in enumerate(self._cells)])
    return common, split, join, lambda: boundaries[num]

  def _OneByOne(self):
    """Whether there is nothing to overlap or recompute."""
    one_device = len(set(self._devices)) == 1
    if self.do_eval and one_device:
      return True
    return len(self._cells) == 1 and self.params.num_micro_batches == 1

  def _Splitting(self, nmap):
    """How the inputs are split into micro-batches.

    Args:
      nmap: NestedMap of tensors and None.

    Returns:
      (a function that splits such a NestedMap, without None, for the loop; the
      layout that its tensors then have; what joins an output tensor).
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
    size = max(sizes.values(), key=lambda n: n or 0)  # Of those that are known.
    m = p.num_micro_batches
    if p.pad_batch and (size is None or size % m):
      batch_size = tf.shape(boundary.Present(nmap).Flatten()[0])[p.batch_dim]
      uneven = micro_batch.UnevenSizes(batch_size, m)
      return boundary.Present, slices.Rows(uneven, p.batch_dim, m), lambda x: x
    micro_batch.Size(size, m, p.micro_batch_size)

    def Split(nmap):
      return boundary.Present(nmap).Transform(
          lambda x: micro_batch.Split(x, m, p.batch_dim))

    return Split, slices.Stacked(m), lambda x: micro_batch.Join(x, p.batch_dim)

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
    nested = self.params.nested_map_fprop

    def CellFn(theta, state0, inputs):
      del state0
      args = boundary.Unpack(boundary.Restore(inputs, boundaries[i]), nested)
      outputs = boundary.Pack(name, self._RunCell(cell, theta, args), nested)
      if i + 1 not in boundaries:
        metadata.Check(name, cell, ToTuple(args), outputs)
      boundaries[i + 1] = boundary.Template(outputs)
      return boundary.Present(outputs), py_utils.NestedMap()

    return CellFn


def _CheckChoices(p):
  """Refuses values that none of a pipeline's params may have."""
  for name, choices in (('recompute', RECOMPUTE_MODES),
                        ('schedule', SCHEDULES)):
    if p.Get(name) not in choices:
      raise ValueError(
          f'{p.name}: {name} is {p.Get(name)!r}; it must be one of '
          f'{", ".join(choices)}.')
  if p.in_flight is not None and p.in_flight < 1:
    raise ValueError(f'{p.name}: in_flight is {p.in_flight}; at least one '
                     'micro-batch must be under way.')
  try:
    micro_batch.CheckNumber(p.num_micro_batches)
  except ValueError as e:
    raise ValueError(f'{p.name}: {e}') from e
