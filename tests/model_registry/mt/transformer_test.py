"""The registered sizes are the papers'."""

import sys

import numpy as np
import pytest

from lingvo_gpipe import partition
from lingvo_gpipe.launcher import parameter_count
from model_registry.mt import transformer


_COUNT = parameter_count.ParameterCount()


def _NumParams(model):
  return _COUNT.Of(model().Task())


# The paper's T(L, H, A), what it says they have, and what they have here: the
# paper gives one or two digits, and not which embeddings are shared.
@pytest.mark.parametrize('model, size, published, found', [
    (transformer.Multilingual400M, (6, 8192, 16), 400e6, 408e6),
    (transformer.Multilingual1300MWide, (12, 16384, 32), 1.3e9, 1239e6),
    (transformer.Multilingual1300MDeep, (24, 8192, 16), 1.3e9, 1240e6),
    (transformer.Multilingual3B, (32, 16384, 32), 3e9, 3088e6),
    (transformer.Multilingual6B, (64, 16384, 32), 6e9, 6044e6),
])
def testMultilingualSizesOfThePaper(model, size, published, found):
  assert (model.NUM_LAYERS, model.HIDDEN_DIM, model.NUM_HEADS) == size
  n = _NumParams(model)
  np.testing.assert_allclose(n, published, rtol=.05)
  np.testing.assert_allclose(n, found, rtol=.001)


@pytest.mark.parametrize('model, published', [
    (transformer.TransformerBase, 65e6), (transformer.TransformerBig, 213e6)])
def testSizesOfAttentionIsAllYouNeed(model, published):
  np.testing.assert_allclose(_NumParams(model), published, rtol=.05)


def testInputsFitTheModel():
  for model in (transformer.TransformerBase, transformer.Multilingual400M):
    p, task = model().Train(), model().Task()
    names = [
        layer.name for layer in partition.NamedLayers(task.pipeline.layers)
    ]
    assert names[1:7] == [f'encoder_00{i}' for i in range(model.NUM_LAYERS)]
    assert names[8:14] == [f'decoder_00{i}' for i in range(model.NUM_LAYERS)]
    assert p.vocab_size == task.pipeline.layers[0].vocab_size
    assert len(p.bucket_batch_limit) == len(p.bucket_upper_bound)
    assert len(task.pipeline.input_shapes) == 7
    # Batches of other lengths have other sizes.
    assert task.pipeline.pad_batch == (len(set(p.bucket_batch_limit)) > 1)
    for size in p.bucket_batch_limit:
      assert size % task.pipeline.num_micro_batches == 0


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
