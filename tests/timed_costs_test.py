"""Measured costs: what they depend on, what they leave alone, where they stay."""

import json
import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import layers
from lingvo.core import py_utils
import pytest

import lingvo_gpipe
from lingvo_gpipe import layer_timing
from lingvo_gpipe import timed_costs
from tests import toy_layers

_T = tf.TensorSpec


def _Dense(name, dim, **kwargs):
  return toy_layers.Dense.Params().Set(name=name, dim=dim, **kwargs)


class _Repeat(base_layer.BaseLayer):
  """x w, so many times over: [n, 64] -> [n, 64]."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('times', 1, '')
    return p

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    self.CreateVariable('w', py_utils.WeightParams([64, 64]))

  def FProp(self, theta, x):
    for _ in range(self.params.times):
      x = tf.matmul(x, theta.w)
    return x


def testMoreWorkTakesLonger():
  light, heavy, same = timed_costs.LayerCosts(
      [_Repeat.Params().Set(name=n, times=t)
       for n, t in (('light', 1), ('heavy', 50), ('same', 1))], [256, 64])
  assert light.source == heavy.source == 'timed'
  assert heavy.forward_seconds > 5 * light.forward_seconds
  assert heavy.backward_seconds > 5 * light.backward_seconds
  assert same.forward_seconds == light.forward_seconds and same.name == 'same'
  assert heavy.forward_flops == 50 * light.forward_flops


class _SkipsPadding(_Repeat):
  """Does nothing if there is padding."""

  def FProp(self, theta, x, paddings):
    return tf.cond(
        tf.reduce_any(paddings > 0), lambda: x,
        lambda: super(_SkipsPadding, self).FProp(theta, x))


def testNothingIsPadding():
  light, = timed_costs.LayerCosts([_Repeat.Params().Set(name='l')], [256, 64])
  p = _SkipsPadding.Params().Set(name='p', times=50)
  heavy, = timed_costs.LayerCosts([p], [256, 64], [256])
  assert heavy.forward_seconds > 5 * light.forward_seconds


def _Measured(layers, unused_device, unused_config):
  """(forward, backward) of a made-up clock: by `dim` alone, twice as long in sequence."""
  forward = sum(x.params.dim for x in layers) * (2 if len(layers) > 1 else 1)
  return forward, 3 * forward


def testLayersAloneShareTheTimeInSequence(monkeypatch):
  monkeypatch.setattr(layer_timing, 'Seconds', _Measured)
  costs = timed_costs.LayerCosts(
      [_Dense(name, 4) for name in 'ab'] + [_Dense('c', 4, keep_prob=0.5)], [8, 4])
  assert [c.forward_seconds for c in costs] == [8, 8, 8]
  assert [c.backward_seconds for c in costs] == [24, 24, 24]


def testSequencesThatFitAnyDevice(monkeypatch):
  sequences = []

  def Seconds(layers, *args):
    sequences.append([x.params.name for x in layers])
    return _Measured(layers, *args)

  monkeypatch.setattr(layer_timing, 'Seconds', Seconds)
  # Weights and gradients of 0.5 GB a layer: two of them run in sequence.
  costs = timed_costs.LayerCosts([_Dense(name, 8000) for name in 'abcde'], [1, 8000])
  assert sequences == [['a'], ['a', 'a']]
  assert [c.forward_seconds for c in costs] == [16000] * 4 + [8000]


def testNoTimeAtAll(monkeypatch):
  monkeypatch.setattr(layer_timing, 'Seconds', lambda layers, *_: (len(layers) - 1., 0.))
  costs = timed_costs.LayerCosts([_Dense('a', 4), _Dense('b', 4)], [8, 4])
  assert [(c.forward_seconds, c.backward_seconds) for c in costs] == [(0.5, 0)] * 2


def testIntegers():
  emb = layers.SimpleEmbeddingLayer.Params().Set(
      name='emb', vocab_size=9, embedding_dim=4)
  cost, = timed_costs.LayerCosts([emb], _T([4, 6], tf.int32))
  assert cost.forward_seconds >= 0 and cost.backward_seconds >= 0


def testNestedMapsAndNone():
  p = toy_layers.MapConv.Params().Set(name='conv')
  nmap = py_utils.NestedMap(vec=[2, 8, 8, 1], paddings=None)
  cost, = timed_costs.LayerCosts([p], nmap)
  assert cost.outputs.paddings is None and cost.forward_seconds >= 0


def _Refuse(*args):
  raise AssertionError(f'measured: {args}')


def testCache(tmp_path, monkeypatch):
  cache = str(tmp_path / 'train' / 'times.json')
  dense = [_Dense('a', 4), _Dense('b', 4), _Dense('c', 4, keep_prob=0.5)]
  costs = timed_costs.LayerCosts(dense, [8, 4], cache=cache)
  with open(cache) as f:
    assert len(json.load(f)) == 3  # a and b are equal; c; all in sequence.
  with monkeypatch.context() as m:
    m.setattr(layer_timing, 'Seconds', _Refuse)
    assert timed_costs.LayerCosts(dense, [8, 4], cache=cache) == costs
    # Other shapes, params or threads: other times.
    threads = tf.config_pb2.ConfigProto(intra_op_parallelism_threads=1)
    for p, shape, config in ((dense[0], [9, 4], None),
                             (_Dense('a', 4, keep_prob=0.9), [8, 4], None),
                             (dense[0], [8, 4], threads)):
      with pytest.raises(AssertionError, match='measured'):
        timed_costs.LayerCosts([p], shape, cache=cache, session_config=config)
  timed_costs.LayerCosts([_Dense('d', 5)], [8, 5], cache=cache)
  with open(cache) as f:
    assert len(json.load(f)) == 4
  assert [p.name for p in (tmp_path / 'train').iterdir()] == ['times.json']


def testDeviceThatIsNotThere():
  with pytest.raises(ValueError, match='cannot be timed on /device:GPU:77'):
    timed_costs.LayerCosts([_Dense('a', 4)], [8, 4], device='/device:GPU:77')


@pytest.mark.parametrize('device', [
    '/job:localhost/replica:0/task:0/device:CPU:1',
    '/job:worker/replica:0/task:3/device:CPU:2'])
def testDevices(device):
  cost, = timed_costs.LayerCosts([_Dense('a', 4)], [8, 4], device=device)
  assert cost.forward_seconds >= 0


def _Pipeline(**kwargs):
  """(initial values by variable name, step seed, the layers of each stage)."""
  with tf.Graph().as_default() as graph:
    graph.seed = 5
    seed = py_utils.GetStepSeed()
    before = len(graph.get_operations())
    times = [20, 1, 1, 1]
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='net', num_stages=2, input_shapes=[[512, 64]], num_micro_batches=2,
        layers=[_Repeat.Params().Set(name=f'l{i}', times=n)
                for i, n in enumerate(times)], **kwargs).Instantiate()
    assert py_utils.GetStepSeed() is seed
    made = len(graph.get_operations()) - before
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      values = {v.name: session.run(v).tolist() for v in net.vars.Flatten()}
  return made, values, [s.layers for s in net.stages]


def testAPipelineBalancedByTime(tmp_path):
  cache = tmp_path / 'times.json'
  timed = _Pipeline(cost='time', cost_cache=str(cache))
  assert timed == _Pipeline(cost='flops')
  assert timed[-1] == [['l0'], ['l1', 'l2', 'l3']]
  assert len(json.loads(cache.read_text())) == 3


@pytest.mark.parametrize('kwargs,match', [
    (dict(cost='money'), "net: cost is 'money'"),
    (dict(cost='time'), "net: cost='time' needs input_shapes")])
def testRefusals(kwargs, match):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=match):
    lingvo_gpipe.PipeliningLayer.Params().Set(
        name='net', layers=[_Dense('a', 4)], **kwargs).Instantiate()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
