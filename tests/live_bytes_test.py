"""Memory of a layer against counts by hand."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import py_utils
import pytest

from lingvo_gpipe import called_functions
from lingvo_gpipe import layer_graph
from lingvo_gpipe import live_bytes

_X = 4 * 8 * 16  # The bytes of [8, 16].


def _Bytes(fn, shapes=((8, 16),), weight=None):
  """(Kept, Peak) of a layer whose FProp is fn([w, ]*inputs)."""

  class Layer(base_layer.BaseLayer):

    def _CreateLayerVariables(self):
      super()._CreateLayerVariables()
      if weight:
        self.CreateVariable('w', py_utils.WeightParams(weight))

    def FProp(self, theta, *inputs):
      return fn(theta.w, *inputs) if weight else fn(*inputs)

  graph = layer_graph.Trace(
      Layer.Params().Set(name='layer'),
      tuple(tf.TensorSpec(shape, tf.float32) for shape in shapes))
  scope = called_functions.Scope(None)
  return live_bytes.Kept(graph, scope), live_bytes.Peak(graph, scope)


def testWhatTheGradientTakesIsKept():
  # The square of the sum: its gradient takes the sum, not the input.
  kept, _ = _Bytes(lambda x: tf.square(x + 1.))
  assert kept == 2 * _X
  # A sum's takes nothing.
  kept, _ = _Bytes(lambda x: (x + 1.) + 2.)
  assert kept == _X


def testWeightsAndConstantsAreNot():
  kept, _ = _Bytes(lambda w, x: x * w, weight=[8, 16])
  assert kept == _X
  kept, _ = _Bytes(lambda x: x * tf.constant(2., shape=[8, 16]))
  assert kept == _X


def testOtherNamesOfATensorAreNotMoreMemory():

  def Renamed(x):
    y = tf.exp(x)
    return tf.square(tf.reshape(tf.identity(y), [16, 8])) + tf.reshape(tf.square(y), [16, 8])

  assert _Bytes(Renamed)[0] == 2 * _X


def testEachOutputOfIdentityNHasAnInputOfItsOwn():

  def Both(x, y):
    return tuple(map(tf.square, tf.identity_n([x + 1., y + 1.])))

  kept, _ = _Bytes(Both, [(8, 16), (8, 48)])
  assert kept == 2 * (_X + 3 * _X)


def testAShapeAloneKeepsNothing():

  @tf.custom_gradient
  def Ones(x):
    return x + 1., lambda dy: dy * tf.raw_ops.OnesLike(x=x)

  assert _Bytes(lambda x: Ones(x + 1.))[0] == _X


def testALoopKeepsEachIterations():

  def Loop(times):
    step = lambda i, y: (i + 1, tf.tanh(y))
    return _Bytes(lambda x: tf.while_loop(
        lambda i, _: i < times, step, (0, x))[1])[0]

  few, more, most = map(Loop, (2, 5, 8))
  assert more - few == most - more == 3 * _X


def testOperatorsInFunctionsTakeMemoryToo():

  @tf.function
  def Wide(x):
    return tf.reduce_sum(tf.concat([tf.exp(x)] * 10, 0))

  _, peak = _Bytes(Wide)
  assert peak >= 11 * _X


def testPeakOfAChainOfProducts():
  # x -> a -> b, each as large as x: the gradients of b and a, one after another,
  # beside x and a.
  def Chain(w, x):
    return tf.matmul(tf.matmul(x, w), w)

  _, peak = _Bytes(Chain, weight=[16, 16])
  weight = 4 * 16 * 16
  assert 3 * _X + weight <= peak <= 4 * _X + 2 * weight


def _Passing(x, times):
  """A scalar, for which `times` as much as x is there for a while."""
  return tf.reduce_sum(tf.concat([tf.stop_gradient(x)] * times, 0))


def testTheInputsLiveAllTheTime():
  _, peak = _Bytes(lambda x, y: _Passing(tf.exp(y), 10), [(8, 16)] * 2)
  assert peak == (2 + 1 + 10) * _X


def testAnOutputLivesUntilTheForwardPassEnds():

  def Two(x):
    return tf.concat([tf.stop_gradient(x)] * 5, 0), _Passing(x, 10)

  scalar = 4
  assert _Bytes(Two)[1] == (1 + 5 + 10) * _X + scalar


def testAnUnusedResultIsGoneAtOnce():

  def Split(x):
    used, _ = tf.split(tf.concat([tf.stop_gradient(x)] * 10, 1), 2, axis=1)
    return tf.reduce_sum(used), _Passing(x, 30)

  assert (1 + 30) * _X <= _Bytes(Split)[1] < (1 + 31) * _X


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
