"""What stages are balanced by: what is asked of the cost model, and what is made of it."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import cluster_factory
import pytest

import lingvo_gpipe
from lingvo_gpipe import balance
from lingvo_gpipe import cost_model
from lingvo_gpipe import timed_costs
from tests import toy_layers
from tests.planning.layer_costs import Layer


class _Tied(base_layer.BaseLayer):
  """x w' with another layer's w."""

  def FProp(self, theta, x):
    return tf.matmul(x, theta.w, transpose_b=True)


def _Layers():
  return [toy_layers.Dense.Params().Set(name='dense'), _Tied.Params().Set(name='tied')]


def _Pipeline(**kwargs):
  return lingvo_gpipe.PipeliningLayer.Params().Set(**{
      'name': 'p', 'layers': _Layers(), 'num_stages': 2, 'input_shapes': [[12, 4]], 'num_micro_batches': 3,
      'shared_weights': {'tied.w': 'dense.w'}, **kwargs})


def _Costs(p):
  return balance.LayerCosts(p, p.layers, cluster_factory.Current())


def testFlopsAreForwardAndBackwardOfAMicroBatch():
  _, tied = _Costs(_Pipeline())
  product = 2 * 4 * 4 * 4
  assert tied == 3 * product
  # Along another dimension: 12 rows, 3 micro-batches of one column each.
  first = toy_layers.Dense.Params().Set(name='dense', dim=3)
  p = _Pipeline(layers=[first] * 2, input_shapes=[[5, 12, 3]], batch_dim=1, shared_weights={})
  assert _Costs(p) == [c.flops for c in cost_model.LayerCosts([first] * 2, [5, 4, 3])]


def testTimesAreForwardAndBackward(monkeypatch):
  asked = {}

  def LayerCosts(layers, *inputs, **kwargs):
    asked.update(kwargs, inputs=inputs)
    return [Layer(p.name, forward_seconds=1., backward_seconds=3. + i) for i, p in enumerate(layers)]

  monkeypatch.setattr(timed_costs, 'LayerCosts', LayerCosts)
  p = _Pipeline(cost='time', cost_cache='/some/times.json', stage_devices=['/cpu:1', '/cpu:0'])
  assert _Costs(p) == [4., 5.]
  assert asked == dict(
      inputs=(tf.TensorSpec([4, 4]),), shared_weights={'tied.w': 'dense.w'}, cache='/some/times.json',
      device='/cpu:1')


@pytest.mark.parametrize('kwargs', [dict(input_shapes=None), dict(num_stages=1)])
def testWhereNothingIsToBeWeighedAllAreEqual(kwargs, monkeypatch):
  monkeypatch.setattr(cost_model, 'LayerCosts', None)  # Not called.
  assert _Costs(_Pipeline(**kwargs)) == [1., 1.]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
