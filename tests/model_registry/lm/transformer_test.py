"""The registered language models: their sizes and their data."""

import sys

from lingvo import model_registry as lingvo_model_registry
import lingvo.compat as tf
from lingvo.core import cluster_factory
import pytest

from lingvo_gpipe.launcher import parameter_count
from model_registry.lm import transformer

_MODELS = [
    'OneBillionWords', 'TransformerL103', 'TransformerL13', 'TransformerL1663',
    'TransformerL3', 'TransformerL415', 'TransformerTiny'
]


_COUNT = parameter_count.ParameterCount()


def _NumParameters(model):
  return _COUNT.Of(model().Task())


# Table 1 of the GPipe paper.
@pytest.mark.parametrize('model, expected', [
    (transformer.TransformerL3, 282.2e6),
    (transformer.TransformerL13, 785.8e6),
    (transformer.TransformerL103, 5.3e9),
    (transformer.TransformerL415, 21.0e9),
    (transformer.TransformerL1663, 83.9e9),
])
def testParametersAreThePapers(model, expected):
  found = _NumParameters(model)
  # To the last digit that the paper gives.
  assert f'{found:.3e}' == f'{expected:.3e}' or (
      expected > 1e9 and round(found, -8) == expected)
  # RMSProp's two slots make 12 bytes a parameter.
  assert model.OPTIMIZER.momentum


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
