"""What a pipeline's stages are balanced by: its layers' costs, as it asks for them."""

from lingvo_gpipe import cost_model
from lingvo_gpipe import placement
from lingvo_gpipe import timed_costs
from lingvo_gpipe.feature_extraction import ToTuple


def LayerCosts(p, layers, cluster):
  """The cost of each layer.

  Args:
    p: The params of a PipeliningLayer.
    layers: The params of its layers, in sequence.
    cluster: The Lingvo cluster, which has the devices.

  Returns:
    A list of numbers: FLOPs or seconds for a micro-batch, forward and backward;
    all 1 if nothing is known of the inputs, or nothing is to be cut.

  Raises:
    ValueError: an unknown p.cost, or `time` without input_shapes.
  """
  if p.cost not in ('flops', 'time'):
    raise ValueError(f'cost is {p.cost!r}; it must be `flops` or `time`.')
  if p.input_shapes is None and p.cost == 'time':
    raise ValueError(
        "cost='time' needs input_shapes: the layers are timed on inputs of "
        'these shapes.')
  if p.input_shapes is None or p.num_stages == 1:
    return [1.] * len(layers)
  device = placement.StageDevices(p.stage_devices, cluster, p.num_stages)[0]
  costs = MicroBatchCosts(p, layers, p.num_micro_batches, device)
  if p.cost == 'flops':
    return [cost.flops for cost in costs]
  return [cost.forward_seconds + cost.backward_seconds for cost in costs]


def MicroBatchCosts(p, layers, num_micro_batches, device=''):
  """The cost_model.LayerCosts of a pipeline's layers, traced or (p.cost) timed.

  Args:
    p: The params of a PipeliningLayer, with input_shapes.
    layers: The params of its layers, in sequence.
    num_micro_batches: How many micro-batches the mini-batch is split into.
    device: Where layers are timed; see timed_costs.LayerCosts.

  Returns:
    A list.
  """
  inputs = cost_model.MicroBatch(
      ToTuple(p.input_shapes), num_micro_batches, p.batch_dim)
  if p.cost == 'time':
    return timed_costs.LayerCosts(
        layers, *inputs, shared_weights=p.shared_weights, device=device,
        cache=p.cost_cache)
  return cost_model.LayerCosts(
      layers, *inputs, shared_weights=p.shared_weights)
