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
  inputs = cost_model.MicroBatch(
      ToTuple(p.input_shapes), p.num_micro_batches, p.batch_dim)
  if p.cost == 'flops':
    costs = cost_model.LayerCosts(
        layers, *inputs, shared_weights=p.shared_weights)
    return [cost.flops for cost in costs]
  device = placement.StageDevices(p.stage_devices, cluster, p.num_stages)[0]
  costs = timed_costs.LayerCosts(
      layers, *inputs, shared_weights=p.shared_weights, device=device,
      cache=p.cost_cache)
  return [cost.forward_seconds + cost.backward_seconds for cost in costs]
