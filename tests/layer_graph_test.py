"""One layer alone: what its graph holds, and what it sees of the model around it."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import cluster_factory
from lingvo.core import layers
import pytest

from lingvo_gpipe import cost_model
from lingvo_gpipe import layer_graph
from tests import toy_layers


def _Trace(cls, *shapes):
  return layer_graph.Trace(
      cls.Params().Set(name='layer'),
      tuple(tf.TensorSpec(shape, tf.float32) for shape in shapes))


def _Types(operators):
  return [op.type for op in operators]


@pytest.mark.parametrize('do_eval', [False, True])
def testAloneHandsOnTheClusterAndNothingElse(do_eval):

  def See():
    tf.constant(1.)
    return cluster_factory.Current().do_eval, tf.get_default_graph()

  with tf.Graph().as_default() as graph, tf.variable_scope('scope'):
    with cluster_factory.ForTestingWorker(do_eval=do_eval):
      found, inner = layer_graph.Alone(See)
      assert layer_graph.Alone(lambda: tf.get_variable_scope().name) == ''
  assert found == do_eval
  assert inner is not graph and not graph.get_operations()


def testAloneRaisesWhatTheFunctionRaises():
  with pytest.raises(ZeroDivisionError):
    layer_graph.Alone(lambda: 1 / 0)


class _Dropout(base_layer.BaseLayer):

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('dropout', layers.DropoutLayer.Params().Set(keep_prob=.5))

  def FProp(self, theta, x):
    return self.dropout.FProp(theta.dropout, x)


def testDropoutIsAsInAPipeline():
  graph = _Trace(_Dropout, [8, 4])
  assert not [op for op in graph.forward if op.op_def.is_stateful]
  assert 'StatelessRandomUniformV2' in _Types(graph.forward) or (
      'StatelessRandomUniform' in _Types(graph.forward))


class _Accumulates(base_layer.BaseLayer):
  """Sums up what nothing else needs."""

  def __init__(self, params):
    super().__init__(params)
    self.RegisterAccumulator('calls', toy_layers.Calls())

  def FProp(self, theta, x):
    calls = self.accumulators.calls
    calls.SetValue(calls.GetValue() + tf.reduce_sum(tf.matmul(x, x)))
    tf.matmul(x, x, name='unused')
    return x + 1.


def testWhatIsAccumulatedIsWorkAndWhatNothingNeedsIsNot():
  graph = _Trace(_Accumulates, [4, 4])
  assert _Types(graph.forward).count('MatMul') == 1
  assert not _Types(graph.backward).count('MatMul')


class _Area(base_layer.BaseLayer):
  """Uses an operator that TensorFlow has no gradient of."""

  def FProp(self, theta, x):
    return tf.raw_ops.ResizeArea(images=x, size=[2, 2])


def testAnOperatorWithoutAGradientIsNamed():
  graph = _Trace(_Area, [1, 4, 4, 1])
  assert 'ResizeArea' in graph.no_gradient and not graph.backward
  cost = cost_model.Trace(_Area.Params().Set(name='layer'), [1, 4, 4, 1])
  assert 'gradient' in cost.uncounted and cost.backward_flops == 0


def testForwardAndBackwardAreApart():
  graph = _Trace(toy_layers.Dense, [8, 4])
  assert _Types(graph.forward).count('MatMul') == 1
  assert _Types(graph.backward).count('MatMul') == 2
  assert not set(graph.forward) & set(graph.backward)
  assert [x.shape.as_list() for x in graph.inputs] == [[8, 4]]
  assert len(graph.input_gradients) == 1
  assert len(graph.weight_gradients) == len(graph.weights)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
