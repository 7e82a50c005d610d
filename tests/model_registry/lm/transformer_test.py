"""The registered language models: their sizes and their data."""

import functools
import sys

from lingvo import model_registry as lingvo_model_registry
import lingvo.compat as tf
from lingvo.core import cluster_factory
import numpy as np
import pytest

from model_registry.lm import transformer

_MODELS = [
    'OneBillionWords', 'TransformerL103', 'TransformerL13', 'TransformerL1663',
    'TransformerL3', 'TransformerL415', 'TransformerTiny'
]


def _CountLayer(layer):
  """The parameters of a layer."""
  with tf.Graph().as_default():  # Variables of a graph take no memory.
    variables = layer.Instantiate().vars
    return sum(int(np.prod(v.shape)) for v in variables.Flatten())


@functools.lru_cache(maxsize=None)
def _NumParameters(model):
  """The parameters of a model; of layers that are alike, one is made."""
  counted = []  # Pairs (layer, its parameters).
  total = 0
  for layer in model().Task().pipeline.layers:
    if counted:
      layer.name = counted[-1][0].name
    if not counted or layer != counted[-1][0]:
      counted.append((layer, _CountLayer(layer)))
    total += counted[-1][1]
  assert len(counted) == 3  # Embedding, Transformer layers, softmax.
  return total


# Table 1 of the GPipe paper.
_PAPER = [
    (transformer.TransformerL3, 282.2e6),
    (transformer.TransformerL13, 785.8e6),
    (transformer.TransformerL103, 5.3e9),
    (transformer.TransformerL415, 21.0e9),
    (transformer.TransformerL1663, 83.9e9),
]


@pytest.mark.parametrize('model, expected', _PAPER)
def testParametersAreThePapers(model, expected):
  smaller, larger = transformer.TransformerL3, transformer.TransformerL13
  a_layer = (_NumParameters(larger) - _NumParameters(smaller)) / (
      larger.NUM_LAYERS - smaller.NUM_LAYERS)
  found = _NumParameters(smaller) + a_layer * (
      model.NUM_LAYERS - smaller.NUM_LAYERS)
  # To the last digit that the paper gives.
  assert f'{found:.3e}' == f'{expected:.3e}' or (
      expected > 1e9 and round(found, -8) == expected)
  # RMSProp's two slots make 12 bytes a parameter.
  assert model.OPTIMIZER.momentum


@pytest.mark.slow
@pytest.mark.parametrize('model, expected', _PAPER)
def testParametersLayerByLayer(model, expected):
  assert _NumParameters(model) == pytest.approx(expected, rel=0.01)


def testOtherSizes():
  assert _NumParameters(transformer.OneBillionWords) == pytest.approx(
      184e6, rel=0.005)
  assert _NumParameters(transformer.TransformerTiny) < 1.5e6


@pytest.mark.parametrize('name', _MODELS)
def testRegistered(name):
  model = lingvo_model_registry.GetClass(
      f'model_registry.lm.transformer.{name}')()
  for data in (model.Train(), model.Test()):
    assert data.sequence_length == model.SEQUENCE_LENGTH
    assert data.vocab_size == model.VOCAB_SIZE
    assert data.batch_size % model.NUM_MICRO_BATCHES == 0


@pytest.mark.parametrize('model', [
    transformer.OneBillionWords, transformer.TransformerL3])
def testMissingFilesAreNamed(model):
  with tf.Graph().as_default(), cluster_factory.ForTestingWorker():
    data = model().Train().Set(name='input').Instantiate()
    with pytest.raises(ValueError, match='No file matches .data/.*input.train_files'):
      data.BuildDataset()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
