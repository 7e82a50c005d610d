"""The masks of Lingvo's dropout layers in a pipeline.

Layer i drops elements of the i-th input alone. Where output i is 0, its forward
pass dropped; where the gradient of input i is 0, its recomputation did.
"""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import layers
from lingvo.core import py_utils
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import stacked_recurrent

_LAYERS, _BATCH, _DIM, _KEEP = 4, 64, 8, .6
_STEPS = (0, 1, 2**40)

_DROPOUT = layers.DeterministicDropoutLayer.Params().Set(keep_prob=_KEEP)
_KINDS = {
    'elements': _DROPOUT,
    'examples': _DROPOUT.Copy().Set(noise_shape_broadcast_dims=[1]),
    'seeded': _DROPOUT.Copy().Set(random_seed=99),
}
# What _Masks gave, by its arguments.
_FOUND = {}


class _Drop(base_layer.BaseLayer):
  """Drops elements of one of its inputs [batch, dim]."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('which', 0, 'Of which input.')
    p.Define('dropout', None, 'Params of a dropout layer.')
    return p

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('drop', self.params.dropout)

  def FProp(self, theta, *xs):
    xs = list(xs)
    xs[self.params.which] = self.drop.FProp(theta.drop, xs[self.params.which])
    return tuple(xs)


def _Masks(devices, kind, k, m, recompute='always'):
  """What is kept by the forward pass and where the gradient is taken.

  Args:
    devices: A Devices.
    kind: A key of _KINDS.
    k: The number of stages.
    m: The number of micro-batches.
    recompute: The mode.

  Returns:
    Two bool arrays [step, layer, micro-batch, examples, dim].
  """
  key = (kind, k, m, recompute)
  if key in _FOUND:
    return _FOUND[key]
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    step = py_utils.GetOrCreateGlobalStepVar()
    value = tf.placeholder(tf.int64, [])
    assign = step.assign(value)
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='pipeline', num_stages=k, num_micro_batches=m, recompute=recompute,
        layers=[
            _Drop.Params().Set(name=f'drop_{i}', which=i, dropout=_KINDS[kind])
            for i in range(_LAYERS)
        ]).Instantiate()
    xs = [tf.ones([_BATCH, _DIM]) for _ in range(_LAYERS)]
    ys = net.FPropDefaultTheta(*xs)
    grads = tf.gradients(ys, xs)
  found = []
  with devices.Session(graph, k, rewrite=False) as session:
    session.run(step.initializer)
    for s in _STEPS:
      session.run(assign, {value: s})
      found.append(session.run([ys, grads]))
  found = np.array(found).reshape(
      (len(_STEPS), 2, _LAYERS, m, _BATCH // m, _DIM)) != 0
  _FOUND[key] = found[:, 0], found[:, 1]
  return _FOUND[key]


@pytest.mark.parametrize(
    'kind,recompute', [(kind, 'always') for kind in _KINDS] + [
        ('elements', r) for r in stacked_recurrent.RECOMPUTE_MODES
        if r != 'always'])
def testRecomputationUsesTheMaskOfTheForwardPass(devices, kind, recompute):
  forward, backward = _Masks(devices, kind, 3, 4, recompute)
  np.testing.assert_array_equal(forward, backward)


@pytest.mark.parametrize(
    'kind,k', [('elements', 1), ('elements', 2), ('elements', 4),
               ('examples', 1), ('seeded', 1)])
def testMasksDoNotDependOnTheStages(devices, kind, k):
  three, _ = _Masks(devices, kind, 3, 4)
  masks, _ = _Masks(devices, kind, k, 4)
  np.testing.assert_array_equal(masks, three)


@pytest.mark.parametrize(
    'kind,m', [(kind, 4) for kind in _KINDS] + [('elements', 1)])
def testMasksDifferByMicroBatchStepAndLayer(devices, kind, m):
  masks, _ = _Masks(devices, kind, 3, m)
  each = masks.reshape(len(_STEPS) * _LAYERS * m, -1)
  assert len({mask.tobytes() for mask in each}) == len(each)
  if kind == 'examples':
    assert (masks == masks[..., :1]).all()
    each = masks[..., 0].reshape(len(each), -1)
  # Not merely other masks, but independent ones: any two agree where chance has
  # it. 6 standard deviations.
  n = each.shape[1]
  agree = (each[:, None] == each[None]).mean(-1)[~np.eye(len(each), dtype=bool)]
  chance = _KEEP**2 + (1 - _KEEP)**2
  assert abs(agree - chance).max() < 6 * np.sqrt(chance * (1 - chance) / n)
  assert abs(each.mean() - _KEEP) < 6 * np.sqrt(_KEEP * (1 - _KEEP) / each.size)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
