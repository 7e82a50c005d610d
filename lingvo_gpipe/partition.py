"""Partitions: layers in sequence -> contiguous stages of about equal cost."""

import lingvo.compat as tf
from lingvo.core import builder_layers
from lingvo.core import gpipe
import numpy as np

from lingvo_gpipe import cost_model
from lingvo_gpipe import cuts
from lingvo_gpipe import metadata
from lingvo_gpipe.feature_extraction import FeatureExtractionLayer

_SEQUENCES = (builder_layers.SequentialLayer, FeatureExtractionLayer,
              gpipe.FeatureExtractionLayer)

# How to cut, by name.
RULES = ('min_max', 'least_variance', 'histogram')


def Partition(costs,
              num_stages,
              rule='min_max',
              speeds=None,
              boundary_bytes=None,
              memory=None):
  """Cuts a sequence of costs into contiguous stages.

  By default exact: no other cut has a smaller largest stage; among those that
  tie, none has a smaller variance, and then none has fewer bytes at its
  boundaries (cuts.py).

  Args:
    costs: The cost of each layer, a list of numbers >= 0.
    num_stages: The number of stages.
    rule: `min_max`; `least_variance`, the paper's rule; `histogram`, Lingvo's;
      or a list of the first layer of each stage but the first.
    speeds: The speed of each stage's device, for the first two rules; None: all
      are 1.
    boundary_bytes: The bytes of each layer's input, for the first two rules;
      None: all are equal.
    memory: What fits, a best_cut.Memory, for the first two rules, or None.

  Returns:
    A list of num_stages (start, end) pairs; none is empty.

  Raises:
    ValueError: num_stages isn't a positive integer, there are more stages than
      layers, or the rule can't be followed.
    best_cut.MemoryLimitError: no cut fits into the memory; a ValueError.
  """
  n = len(costs)
  if not isinstance(num_stages, (int, np.integer)) or num_stages < 1:
    raise ValueError(
        f'num_stages is {num_stages!r}; it must be a positive integer.')
  if num_stages > n:
    raise ValueError(
        f'num_stages={num_stages} is more than the {n} layers there are; each '
        f'stage needs a layer. Use at most {n} stages.')
  if isinstance(rule, (list, tuple)):
    return cuts.Given(rule, n, num_stages)
  if rule == 'histogram':
    return cuts.Histogram(costs, num_stages)
  exact = {'min_max': cuts.MinMax, 'least_variance': cuts.LeastVariance}
  if rule not in exact:
    raise ValueError(
        f'partition is {rule!r}; choose one of {", ".join(RULES)}, or list the '
        'first layer of each stage but the first.')
  return exact[rule](costs, num_stages, speeds, boundary_bytes, memory)


def Flatten(params):
  """The layers of nested sequences, in order.

  Args:
    params: Params of a layer or a list of them. SequentialLayer (with its
      `repeat`) and FeatureExtractionLayer without fetched activations are
      replaced by what they hold.

  Returns:
    A list of params: those given, and in place of repeated ones, params named
    block_000, block_001, ..., that share what is nested in `block`.
  """
  if isinstance(params, (list, tuple)):
    return [q for p in params for q in Flatten(p)]
  if not issubclass(params.cls, _SEQUENCES) or getattr(
      params, 'act_fetch_layers', None) or getattr(params, 'num_act_inputs', 0):
    return [params]
  layers = Flatten(params.sub)
  times = getattr(params, 'repeat', 1)
  if times == 1:
    return layers
  repeated = [
      _Renamed(p, [p.name and f'{p.name}_{i:03d}' for i in range(times)])
      for p in layers
  ]
  return [q for one_of_each in zip(*repeated) for q in one_of_each]


def _Renamed(params, names):
  """Params like these with each of the names, a list.

  What is nested in them is shared, not copied: copying a Transformer layer's
  params takes milliseconds, and there may be thousands.
  """
  values = dict(params.IterParams())
  blank = params.Copy().Set(**dict.fromkeys(values))
  return [blank.Copy().Set(**dict(values, name=name)) for name in names]


def NamedLayers(params):
  """Flatten, with names that tell the layers apart.

  Args:
    params: As Flatten takes it.

  Returns:
    A list of params. Where a name is missing or there twice, all are named by
    their place, which doesn't depend on the cut: cell_000, cell_001, ...
  """
  layers = Flatten(params)
  names = [p.name for p in layers]
  if all(names) and len(set(names)) == len(names):
    return layers
  return _NamedByPlace(layers)


def _NamedByPlace(layers):
  return [_Renamed(p, ['cell_%03d' % i])[0] for i, p in enumerate(layers)]


def Costs(layers, *inputs):
  """The FLOPs of each layer, forward and backward (cost_model.py).

  Args:
    layers: A list of params.
    *inputs: What the first layer takes: tshape.Shape, lists, or tf.TensorSpec
      where it isn't float32.

  Returns:
    A list of numbers.

  Raises:
    ValueError: a layer doesn't run on such inputs and has no FPropMeta either.
  """
  try:
    return [cost.flops for cost in cost_model.LayerCosts(layers, *inputs)]
  except ValueError:
    costs = _DeclaredFlops(layers, inputs)
    if costs is None:
      raise
    return costs


def _DeclaredFlops(layers, inputs):
  """The forward FLOPs that FPropMeta says, for inputs without dtypes.

  Lingvo's partition knows shapes only, and these layers may want integers.

  Args:
    layers: A list of params.
    inputs: A tuple of tshape.Shape, lists or None.

  Returns:
    A list of numbers; None if there are dtypes, or a layer has no FPropMeta.
  """
  if any(isinstance(x, (tf.TensorSpec, dict)) for x in inputs):
    return None
  shapes = tuple(map(metadata.ToShape, inputs))
  costs = []
  for p in layers:
    try:
      meta = p.cls.FPropMeta(p, *shapes)
    except NotImplementedError:
      return None
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
    *shapes: The first layer's inputs, as Costs takes them.

  Returns:
    A list of FeatureExtractionLayer params, named d0, d1, ...; the layers in
    them are named cell_000, cell_001, ... in order.

  Raises:
    ValueError: more stages than layers, or a layer that Costs can't tell.
  """
  # They are the caller's, who may change one of them.
  layers = [p.Copy() for p in _NamedByPlace(Flatten(params))]
  costs = Costs(layers, *shapes)
  cut = Partition(costs, num_partitions)
  stages = Stages(layers, cut)
  tf.logging.info('Partition: %s', [
      '%s: %d layers, cost %.3g' % (s.name, len(s.sub), c)
      for s, c in zip(stages, StageCosts(costs, cut))
  ])
  return stages


def Stages(layers, cut):
  """FeatureExtractionLayer params d0, d1, ... of the layers, cut by Partition."""
  return [
      FeatureExtractionLayer.Params().Set(
          name='d%d' % i, sub=layers[start:end], variables_in_parent_scope=True)
      for i, (start, end) in enumerate(cut)
  ]


def StageCosts(costs, cut):
  """The cost of each stage of a cut, a list."""
  return [sum(costs[start:end]) for start, end in cut]
