"""Layers that are equal but for their names."""

import sys

import lingvo.compat as tf
from lingvo.core import layers
import pytest

from lingvo_gpipe import cost_model
from lingvo_gpipe import layer_kinds
from tests import toy_layers


def _Layer(name='a', **kwargs):
  return layers.FCLayer.Params().Set(name=name, input_dim=4, output_dim=4, **kwargs)


def testTheNameAloneDoesNotMatter():
  kinds = layer_kinds.Kinds()
  assert kinds.Get(_Layer()) is None
  assert kinds.Add(7, _Layer()) == 7
  assert kinds.Get(_Layer('b')) == 7
  other = _Layer()
  other.params_init = other.params_init.Copy()
  assert kinds.Get(other) == 7
  deeper = _Layer()
  deeper.vn.global_vn = not deeper.vn.global_vn
  for p in (_Layer(activation='NONE'), deeper, toy_layers.Dense.Params().Set(name='a')):
    assert kinds.Get(p) is None


def testWhatElseItDependsOn():
  kinds = layer_kinds.Kinds()
  kinds.Add('few', _Layer(), 8, [1])
  kinds.Add('many', _Layer(), 80, [1])
  assert kinds.Get(_Layer('b'), 8, [1]) == 'few' and kinds.Get(_Layer('b'), 80, [1]) == 'many'
  assert kinds.Get(_Layer('b'), 8, [2]) is None and kinds.Get(_Layer('b')) is None


class _Twice(toy_layers.Dense):
  """Gives each example twice."""

  def FProp(self, theta, x):
    return tf.concat([super().FProp(theta, x)] * 2, 0)


def testEqualLayersMayHaveUnequalInputs():
  dense = [_Twice.Params().Set(name=name) for name in 'abc']
  costs = cost_model.LayerCosts(dense, [8, 4])
  assert [c.input_bytes for c in costs] == [4 * n * 4 for n in (8, 16, 32)]
  assert costs[2].flops > 1.9 * costs[1].flops > 3.6 * costs[0].flops


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
