"""A weight that two stages use."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import py_utils
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import stacked_recurrent

_BATCH, _WORDS, _DIM = 8, 5, 4


class _Embedding(base_layer.BaseLayer):
  """Ids [batch] -> [batch, dim]."""

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    self.CreateVariable(
        'w', py_utils.WeightParams([_WORDS, _DIM],
                                   py_utils.WeightInit.Gaussian(1., seed=3)))

  def FProp(self, theta, ids):
    return tf.gather(theta.w, ids)


class _Softmax(base_layer.BaseLayer):
  """[batch, dim] -> logits [batch, words], by a weight of another layer."""

  def FProp(self, theta, x):
    return tf.matmul(tf.tanh(x), theta.w, transpose_b=True)


def _Pipeline(k, recompute='always', shared=None):
  return lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', num_stages=k, num_micro_batches=4, recompute=recompute,
      layers=[_Embedding.Params().Set(name='embedding'),
              _Softmax.Params().Set(name='softmax')],
      shared_weights=shared or {'softmax.w': 'embedding.w'})


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
@pytest.mark.parametrize('k', [1, 2])
def testGradientIsTheSum(devices, k, recompute):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    net = _Pipeline(k, recompute).Instantiate()
    ids = tf.range(_BATCH) % _WORDS
    y = net.FPropDefaultTheta(ids)
    (v,) = tf.trainable_variables()
    expected = tf.matmul(
        tf.tanh(tf.gather(v, ids)), v, transpose_b=True)
    grads = [
        tf.convert_to_tensor(tf.gradients(tf.reduce_sum(tf.square(x)), v)[0])
        for x in (y, expected)
    ]
  y, expected, grads = devices.Run(graph, k, [y, expected, grads])
  np.testing.assert_allclose(y, expected, rtol=1e-5)
  np.testing.assert_allclose(*grads, rtol=1e-5)


def testSourceThatIsNotThere(devices):
  for shared, match in (
      ({'softmax.w': 'embed.w'}, "no layer 'embed'.* embedding"),
      ({'softmax.w': 'embedding.v'}, "no weight 'embedding.v'. embedding has w"),
      ({'soft.w': 'embedding.w'}, "no layer 'soft'")):
    with tf.Graph().as_default(), devices.Cluster(2):
      net = _Pipeline(2, shared=shared).Instantiate()
      with pytest.raises(ValueError, match=match):
        net.FPropDefaultTheta(tf.zeros([_BATCH], tf.int32))


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
