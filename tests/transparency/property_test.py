"""Any layers, cut anywhere, on any devices, in any number of micro-batches."""

import sys

import hypothesis
from hypothesis import strategies as st
import lingvo.compat as tf
from lingvo.core import bn_layers
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import stacked_recurrent
from tests.transparency import cells
from tests.transparency import harness

_DIM = 3


class _Norm(cells.Dense):
  """Dense with batch normalisation."""

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('norm', bn_layers.BatchNormLayer.Params().Set(
        dim=self.params.dim))

  def FProp(self, theta, x, *others):
    return (self.norm.FProp(theta.norm, super().FProp(theta, x)),) + others


class _Count(cells.Dense):
  """Adds ids to x, and 1 to ids."""

  def FProp(self, theta, x, ids, y):
    x = super().FProp(theta, x) + tf.cast(ids, x.dtype)[:, None]
    return x, ids + 1, y


class _Add(cells.Dense):
  """Adds y to x, if there is one."""

  def FProp(self, theta, x, ids, y):
    x = super().FProp(theta, x)
    return x if y is None else x + y, ids, y


class _Forget(cells.Dense):
  """Gives no y."""

  def FProp(self, theta, x, ids, y):
    return super().FProp(theta, x), ids, None


class _Keep(cells.Dense):
  """Gives its input as y: a skip connection, however far."""

  def FProp(self, theta, x, ids, y):
    return super().FProp(theta, x), ids, x


# Layers of (x [batch, dim], ids int32 [batch], y [batch, dim] or None).
_LAYERS = {
    'dense': cells.Dense.Params(),
    'dropout': cells.Dense.Params().Set(keep_prob=.6),
    'norm': _Norm.Params(),
    'count': _Count.Params(),
    'add': _Add.Params(),
    'forget': _Forget.Params(),
    'keep': _Keep.Params(),
}


@st.composite
def _Networks(draw):
  """Returns (Stack, K, M, recompute)."""
  kinds = draw(st.lists(st.sampled_from(sorted(_LAYERS)), min_size=2, max_size=6))
  m = draw(st.integers(1, 5), label='M')
  size = draw(st.integers(1, 3), label='micro-batch size')
  has_y = draw(st.booleans(), label='y')
  by_hand = draw(st.booleans(), label='stages by hand')
  k = draw(st.integers(1, min(4, len(kinds))), label='K')
  cuts = sorted(draw(st.sets(st.integers(1, len(kinds) - 1)), label='cuts'))

  def Layers():
    return [_LAYERS[kind].Copy().Set(name=f'{kind}_{i}', dim=_DIM)
            for i, kind in enumerate(kinds)]

  def Cells():
    layers = Layers()
    return [
        lingvo_gpipe.FeatureExtractionLayer.Params().Set(
            name=f'cell_{a}', sub=layers[a:b])
        for a, b in zip([0] + cuts, cuts + [len(kinds)])
    ]

  def Inputs(rng):
    x, y = rng.randn(2, m * size, _DIM).astype(np.float32)
    return [x, rng.randint(0, 3, m * size).astype(np.int32), y if has_y else None]

  stack = harness.Stack(
      Layers, Inputs, cells=Cells if by_hand else None, untrained=False,
      by_micro_batch=bool({'dropout', 'norm'} & set(kinds)))
  return stack, k, m, draw(st.sampled_from(stacked_recurrent.RECOMPUTE_MODES))


def _Check(devices, network):
  stack, k, m, recompute = network
  ours = harness.Pipelined(devices, stack, k, m, recompute, ())
  expected = harness.Sequential(devices, stack, m if stack.by_micro_batch else 1)
  harness.AssertSame(ours, expected, stack)


# The fixture has no state, so that examples may share it.
_SHARED = [hypothesis.HealthCheck.function_scoped_fixture]


@hypothesis.settings(max_examples=6, suppress_health_check=_SHARED)
@hypothesis.given(network=_Networks())
def testTransparency(devices, network):
  _Check(devices, network)


@pytest.mark.slow
@hypothesis.settings(max_examples=30, suppress_health_check=_SHARED)
@hypothesis.given(network=_Networks())
def testTransparencyOfMany(devices, network):
  _Check(devices, network)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
