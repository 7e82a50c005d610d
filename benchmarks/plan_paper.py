"""What a plan says of the paper's networks, to be held against the paper's tables.

'GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism', arXiv 1811.06965.
"""

import functools

import lingvo.compat as tf

from lingvo_gpipe import cost_model
from lingvo_gpipe.layers import language_model
from lingvo_gpipe.layers import resnet
from lingvo_gpipe.planning import candidate

# Table 1, Transformer-L: (name, devices, layers, parameters).
TRANSFORMER_L = [
    ('naive-1', 1, 3, 282.2e6),
    ('pipeline-1', 1, 13, 785.8e6),
    ('pipeline-8', 8, 103, 5.3e9),
    ('pipeline-32', 32, 415, 21.0e9),
    ('pipeline-128', 128, 1663, 83.9e9),
]
# Table 2, Transformer-48: {micro-batches: {stages: throughput}}, that of 2 stages and 1 micro-batch being 1.
TRANSFORMER_48 = {1: {2: 1., 4: 1.07, 8: 1.3}, 4: {2: 1.7, 4: 3.2, 8: 4.8}, 32: {2: 1.8, 4: 3.4, 8: 6.3}}
# ResNet-101 in an early version: {stages: throughput}, that of one device without a pipeline being 1.
RESNET_101 = {1: 0.80, 2: 1.418, 4: 2.182, 8: 2.891}

_VOCAB, _DIM, _HIDDEN, _HEADS, _TIME, _BATCH = 32000, 2048, 8192, 32, 1024, 32
_MEMORY = 16e9
# The paper's 12 bytes a parameter are the weight and RMSProp's two numbers. Gradients come on top: with them its
# 'peak activation memory' is 6.4 GB a device, and here too.
_SLOTS = 2.
_RESNET_BATCH = 128


@functools.lru_cache(maxsize=None)
def _TransformerKinds(num_micro_batches):
  """The LayerCosts of the embedding, a layer and the softmax."""
  layers = language_model.LanguageModelLayers(_VOCAB, 1, _DIM, _HIDDEN, _HEADS)
  inputs = [tf.TensorSpec([_BATCH, _TIME], tf.int32)] * 4
  return cost_model.LayerCosts(layers, *cost_model.MicroBatch(inputs, num_micro_batches))


def TransformerCosts(num_layers, num_micro_batches):
  """The LayerCosts of Transformer-L with so many layers."""
  embedding, layer, softmax = _TransformerKinds(num_micro_batches)
  return [embedding] + [layer] * num_layers + [softmax]


def Parameters(num_layers):
  """The parameters of Transformer-L with so many layers."""
  return sum(c.num_params for c in TransformerCosts(num_layers, _BATCH))


def _Planner(costs_at, batch, num_devices, memory=_MEMORY):
  # Transfers are a small part on the paper's accelerators: of 1 TB/s nothing is seen.
  devices = candidate.Devices([memory] * num_devices, [50e12] * num_devices, 1e12)
  return candidate.Planner(costs_at, batch, _SLOTS, devices)


def _Fits(num_layers, num_devices, num_micro_batches, recompute):
  if num_layers + 2 < num_devices:
    return True
  planner = _Planner(lambda m: TransformerCosts(num_layers, m), _BATCH, num_devices)
  return planner.Make(candidate.Choice(num_devices, num_micro_batches, recompute, 'gpipe')).fits


def MostLayers(num_devices, num_micro_batches, recompute):
  """The most layers of Transformer-L that fit on devices of 16 GB."""
  fits, too_many = 0, 32 * num_devices
  while too_many - fits > 1:
    middle = (fits + too_many) // 2
    if _Fits(middle, num_devices, num_micro_batches, recompute):
      fits = middle
    else:
      too_many = middle
  return fits


def TransformerThroughput():
  """Predicted values of TRANSFORMER_48."""
  planner = _Planner(lambda m: TransformerCosts(48, m), _BATCH, 8, memory=float('inf'))
  rates = {
      m: {k: planner.Make(candidate.Choice(k, m, 'always', 'gpipe')).examples_per_second for k in row}
      for m, row in TRANSFORMER_48.items()
  }
  return {m: {k: rate / rates[1][2] for k, rate in row.items()} for m, row in rates.items()}


def ResNetThroughput(num_micro_batches):
  """Predicted values of RESNET_101 for so many micro-batches."""
  inputs = [[_RESNET_BATCH, 224, 224, 3]]
  layers = resnet.ResNetLayers(101, 1000)

  @functools.lru_cache(maxsize=None)
  def CostsAt(m):
    return cost_model.LayerCosts(layers, *cost_model.MicroBatch(inputs, m))

  planner = _Planner(CostsAt, _RESNET_BATCH, 8, memory=float('inf'))
  base = planner.Make(candidate.Choice(1, num_micro_batches, 'never', 'gpipe'))
  return {
      k: planner.Make(candidate.Choice(k, num_micro_batches, 'always', 'gpipe')).examples_per_second /
         base.examples_per_second for k in RESNET_101
  }
