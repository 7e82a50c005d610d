"""What a registered model says that a plan needs: layers, inputs, optimizer."""

import dataclasses

from lingvo.core import py_utils
import numpy as np

from lingvo_gpipe import balance
from lingvo_gpipe import cost_model
from lingvo_gpipe import micro_batch
from lingvo_gpipe import partition
from lingvo_gpipe import pipelined_task
from lingvo_gpipe.feature_extraction import ToTuple
from lingvo_gpipe.launcher import pipelines
from lingvo_gpipe.launcher import user_errors
from lingvo_gpipe.planning import optimizer_slots
from lingvo_gpipe.schedule import SCHEDULES

_SCALED = ('forward_flops', 'backward_flops', 'input_bytes', 'output_bytes',
           'kept_bytes', 'peak_bytes', 'product_flops', 'product_bytes')


class Subject:
  """What is planned.

  Attributes:
    pipeline: The params of its PipeliningLayer.
    layers: The params of the pipeline's layers, a list.
    batch: Examples in a mini-batch.
    rule: How they are cut, see partition.Partition.
    slots: How many numbers the optimizer keeps for a weight.
    schedules: The schedules that it can run under, a list; its own first.
  """

  def __init__(self, params, model_name):
    """Constructor.

    Args:
      params: The model's params.
      model_name: For messages.

    Raises:
      UserError: there isn't one task and in it one pipeline whose input shapes
        are known.
    """
    if 'task' not in params:
      raise user_errors.UserError(
          f'{model_name} has several tasks; a plan is made for one. Register a '
          'model of each (RegisterSingleTaskModel).')
    found = pipelines.FindParams(params)
    if len(found) != 1:
      raise user_errors.UserError(
          f'{model_name} has {len(found) or "no"} PipeliningLayers; a plan is '
          'made for one. Put the layers to be pipelined into one '
          'lingvo_gpipe.PipeliningLayer.')
    self.pipeline, = found
    if not self.pipeline.input_shapes:
      raise user_errors.UserError(
          f'{model_name}: input_shapes of the pipeline {self.pipeline.name} is '
          'not set, so what its layers take and cost is not known. Set it to '
          'the shapes of its inputs, such as [[batch, height, width, channels]].')
    p = self.pipeline
    self.layers = partition.NamedLayers(p.layers or p.cell_tpl)
    self.rule = p.partition
    if not p.layers:
      sizes = [len(partition.Flatten(cell)) for cell in p.cell_tpl]
      self.rule = np.cumsum(sizes)[:-1].tolist()
    specs = tuple(map(cost_model.Spec, ToTuple(p.input_shapes)))
    first = [s for s in py_utils.Flatten(specs) if s][0]
    self.batch = first.shape.as_list()[p.batch_dim]
    self.slots = optimizer_slots.SlotsPerWeight(params.task.train)
    self.schedules = [self.pipeline.schedule]
    if issubclass(params.task.cls, pipelined_task.PipelinedTask):
      self.schedules += [s for s in SCHEDULES if s not in self.schedules]
    self._costs = {}

  def CostsAt(self, num_micro_batches):
    """The LayerCost of each layer for M micro-batches, traced or measured.

    Raises:
      ValueError: they don't make up the mini-batch, or a layer doesn't run.
    """
    m, p = num_micro_batches, self.pipeline
    if m in self._costs:
      return self._costs[m]
    if not p.pad_batch:
      micro_batch.Size(self.batch, m)
    costs = balance.MicroBatchCosts(p, self.layers, m)
    self._costs[m] = costs
    return costs

  def EstimateAt(self, num_micro_batches):
    """As CostsAt, but from those for 1 and for as many as there are examples.

    What a layer takes grows with the micro-batch in a straight line; only the
    peak of its memory may be a little below it. Measured times don't, so they
    are measured.
    """
    if self.pipeline.cost == 'time':
      return self.CostsAt(num_micro_batches)
    share = (self.batch / num_micro_batches - 1) / max(1, self.batch - 1)
    return [
        _Between(one, all_, share)
        for one, all_ in zip(self.CostsAt(self.batch), self.CostsAt(1))
    ]


def _Between(one, all_, share):
  values = {}
  for name in _SCALED:
    low, high = getattr(one, name), getattr(all_, name)
    values[name] = low + share * (high - low)
  return dataclasses.replace(one, **values)
