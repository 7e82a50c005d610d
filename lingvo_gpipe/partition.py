"""Partitions: layers in sequence -> contiguous stages of about equal cost."""

import lingvo.compat as tf
from lingvo.core import builder_layers
from lingvo.core import gpipe
import numpy as np

from lingvo_gpipe.feature_extraction import FeatureExtractionLayer

_SEQUENCES = (builder_layers.SequentialLayer, FeatureExtractionLayer,
              gpipe.FeatureExtractionLayer)


def Partition(costs, num_stages):
  """Cuts a sequence of costs into contiguous stages.

  Exact, by dynamic programming: no other cut has a smaller largest stage; among
  those that tie, none has a smaller sum of squares (and so a smaller variance).

  Args:
    costs: The cost of each layer, a list of numbers >= 0.
    num_stages: The number of stages.

  Returns:
    A list of num_stages (start, end) pairs; none is empty.

  Raises:
    ValueError: num_stages isn't a positive integer, or there are more stages
      than layers.
  """
  n = len(costs)
  if not isinstance(num_stages, (int, np.integer)) or num_stages < 1:
    raise ValueError(
        f'num_stages is {num_stages!r}; it must be a positive integer.')
  if num_stages > n:
    raise ValueError(
        f'num_stages={num_stages} is more than the {n} layers there are; each '
        f'stage needs a layer. Use at most {n} stages.')
  total = np.concatenate([[0.], np.cumsum(np.asarray(costs, np.float64))])
  stage_cost = total[None, :] - total[:, None]  # [start, end]
  largest = _Cut(stage_cost, num_stages, np.maximum)[0]
  # Sums of floats differ in their last bits with the order of addition.
  allowed = stage_cost <= largest * (1 + 1e-9) + 1e-300
  squares = np.where(allowed, np.square(stage_cost), np.inf)
  return _Cut(squares, num_stages, np.add)[1]


def _Cut(stage_cost, num_stages, combine):
  """The best cut of n layers.

  Args:
    stage_cost: [n + 1, n + 1], the cost of a stage of the layers start..end.
    num_stages: The number of stages.
    combine: np.maximum or np.add, which makes one cost of two.

  Returns:
    (the cost, a list of (start, end) pairs).
  """
  n = stage_cost.shape[0] - 1
  nonempty = np.triu(np.ones_like(stage_cost, bool), 1)
  stage_cost = np.where(nonempty, stage_cost, np.inf)
  best = stage_cost[0]
  starts = []
  for _ in range(num_stages - 1):
    candidates = combine(best[:, None], stage_cost)
    starts.append(np.argmin(candidates, axis=0))
    best = np.min(candidates, axis=0)
  stages = []
  end = n
  for start in reversed(starts):
    stages.append((int(start[end]), end))
    end = int(start[end])
  return best[n], [(0, end)] + stages[::-1]


def Flatten(params):
  """The layers of nested sequences, in order.

  Args:
    params: Params of a layer or a list of them. SequentialLayer (with its
      `repeat`) and FeatureExtractionLayer without fetched activations are
      replaced by what they hold.

  Returns:
    A list of copies of params.
  """
  if isinstance(params, (list, tuple)):
    return [q for p in params for q in Flatten(p)]
  if not issubclass(params.cls, _SEQUENCES) or getattr(
      params, 'act_fetch_layers', None) or getattr(params, 'num_act_inputs', 0):
    return [params.Copy()]
  return [
      q for _ in range(getattr(params, 'repeat', 1)) for q in Flatten(params.sub)
  ]


def Costs(layers, *shapes):
  """The forward FLOPs of each layer, by its FPropMeta.

  Args:
    layers: A list of params.
    *shapes: The first layer's input shapes, tshape.Shape.

  Returns:
    A list of numbers.

  Raises:
    ValueError: a layer has no FPropMeta.
  """
  costs = []
  for p in layers:
    try:
      meta = p.cls.FPropMeta(p, *shapes)
    except NotImplementedError as e:
      raise ValueError(
          f'Layer {p.name!r} of class {p.cls.__name__} has no FPropMeta, so its '
          'cost is not known. Give it one (a classmethod that returns flops and '
          'out_shapes), or make the stages yourself and pass them as cell_tpl.'
      ) from e
    costs.append(float(meta.flops))
    shapes = meta.out_shapes
  return costs


def PartitionSequentialLayers(params, num_partitions, *shapes):
  """Cuts layers in sequence into stages of about equal cost.

  Drop-in for lingvo.core.gpipe.PartitionSequentialLayers, but exact
  (`Partition`), and no stage is empty.

  Args:
    params: Params of a layer, or a list of them (`Flatten`).
    num_partitions: The number of stages.
    *shapes: The first layer's input shapes, tshape.Shape.

  Returns:
    A list of FeatureExtractionLayer params, named d0, d1, ...; the layers in
    them are named cell_000, cell_001, ... in order.

  Raises:
    ValueError: more stages than layers, or a layer without FPropMeta.
  """
  layers = Flatten(params)
  for i, p in enumerate(layers):
    p.name = 'cell_%03d' % i
  costs = Costs(layers, *shapes)
  stages = Stages(layers, costs, num_partitions)
  tf.logging.info('Partition: %s', [
      '%s: %d layers, cost %.3g' % (s.name, len(s.sub), c)
      for s, c in zip(stages, StageCosts(costs, stages))
  ])
  return stages


def Stages(layers, costs, num_stages):
  """FeatureExtractionLayer params d0, d1, ... of the layers, by Partition."""
  return [
      FeatureExtractionLayer.Params().Set(
          name='d%d' % i, sub=layers[start:end], variables_in_parent_scope=True)
      for i, (start, end) in enumerate(Partition(costs, num_stages))
  ]


def StageCosts(costs, stages):
  """The cost of each of the stages (as Stages gives them), a list."""
  costs = iter(costs)
  return [sum(next(costs) for _ in stage.sub) for stage in stages]
