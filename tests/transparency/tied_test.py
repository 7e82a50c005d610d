"""Weights that two stages share: their gradient is the sum of both."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
import pytest

from lingvo_gpipe import stacked_recurrent
from tests.transparency import harness
from tests.transparency import stacks

_TIME, _BATCH, _DIM = 4, 2, 3


def testTheStagesHaveOneVariable(devices):
  """Else the stack `tied` would compare something else."""
  stack = stacks.STACKS['tied']
  with tf.Graph().as_default(), devices.Cluster(4), stack.scope():
    net = stack.Pipeline(4, 1, 'always', devices.Names(4)).Instantiate()
    names = [v.op.name for v in tf.trainable_variables()]
  first, last = [net.vars[d][layer].shared.linear.w for d, layer in (
      ('d0', 'embedding'), ('d3', 'softmax'))]
  assert first is last
  assert first.device == devices.Names(4)[0]
  assert not [n for n in names if n.startswith('softmax')]
  assert names.count('embedding/shared/linear/w/var') == 1


def testGradientIsTheSumOfBothStages(devices, monkeypatch):
  """Which are those of two variables of the same value."""
  tied = stacks.STACKS['tied']
  name = '%s/shared/linear/w/var:0'
  ours = harness.Pipelined(devices, tied, 4, 2, 'always', ()).d_variables
  initial = harness.InitialValue
  monkeypatch.setattr(
      harness, 'InitialValue',
      lambda name, shape: initial(name.replace('softmax/', 'embedding/'), shape))
  apart = harness.Sequential(
      devices, harness.Stack(tied.layers, tied.inputs), 1).d_variables
  first, last = apart[name % 'embedding'], apart[name % 'softmax']
  assert abs(first).max() > .01 and abs(last).max() > .01
  np.testing.assert_allclose(
      ours[name % 'embedding'], first + last, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
@pytest.mark.parametrize('k', [2, 3])
def testStackedRecurrentWithOneTheta(devices, k, recompute):

  def Cell(theta, state0, inputs):
    del state0
    y = tf.tanh(tf.matmul(inputs.x, theta.w) + theta.b)
    return py_utils.NestedMap(x=y), py_utils.NestedMap()

  def Numbers(*shape):
    return tf.constant(np.random.RandomState(1).randn(*shape), tf.float32)

  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    theta = py_utils.NestedMap(w=Numbers(_DIM, _DIM), b=Numbers(_DIM))
    x = Numbers(_TIME, _BATCH, _DIM)
    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices=devices.Names(k), cell_fns=Cell, cell_grads=None,
        cell_outs=None, cell_out_grads=None, thetas=[theta] * k,
        init_states=[py_utils.NestedMap()] * k,
        inputs=py_utils.NestedMap(x=x), recompute=recompute)
    ours = tf.gradients(tf.reduce_sum(tf.sin(outputs.x)), theta.Flatten() + [x])
    # Each stage with weights of its own, whose gradients are then added up.
    copies = [theta.Transform(tf.identity) for _ in range(k)]
    y = x
    for copy in copies:
      y = tf.tanh(tf.einsum('tbi,ij->tbj', y, copy.w) + copy.b)
    grads = tf.gradients(tf.reduce_sum(tf.sin(y)),
                         sum([c.Flatten() for c in copies], []) + [x])
    expected = [tf.add_n(grads[:-1][i::2]) for i in range(2)] + grads[-1:]
  ours, expected = devices.Run(graph, k, [ours, expected])
  for a, b in zip(ours, expected):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
