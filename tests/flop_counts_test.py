"""FLOPs of operators against counts by hand; all dimensions differ."""

import sys

import lingvo.compat as tf
import pytest

from lingvo_gpipe import called_functions
from lingvo_gpipe import flop_counts
from lingvo_gpipe import graph_walk
from lingvo_gpipe import lingvo_compat


def _Input(*shape, dtype=tf.float32):
  return tf.placeholder(dtype, shape)


def _Count(build):
  """(FLOPs, types that aren't counted) of what build makes."""
  with tf.Graph().as_default():
    with lingvo_compat.ScratchGraph('test').as_default() as graph:
      build()
    return flop_counts.Count(
        graph.get_operations(), called_functions.Scope(graph))


def _Gradient(build, *shapes):
  """The FLOPs of the gradients of build(*inputs) to all inputs."""
  with tf.Graph().as_default():
    with lingvo_compat.ScratchGraph('test').as_default() as graph:
      inputs = [_Input(*s) for s in shapes]
      y = build(*inputs)
      dy = _Input(*y.shape)
      before = len(graph.get_operations())
      gradients = tf.gradients(y, inputs, grad_ys=dy)
      needed = graph_walk.Ancestors(
          [tf.convert_to_tensor(g) for g in gradients if g is not None])
      ops = [op for op in graph.get_operations()[before:] if op in needed]
    flops, uncounted = flop_counts.Count(ops, called_functions.Scope(graph))
    assert not uncounted
    return flops


@pytest.mark.parametrize('build,flops', [
    (lambda: tf.matmul(_Input(3, 5), _Input(5, 7)), 2 * 3 * 5 * 7),
    (lambda: tf.matmul(_Input(5, 3), _Input(5, 7), transpose_a=True),
     2 * 3 * 5 * 7),
    (lambda: tf.matmul(_Input(2, 3, 5), _Input(2, 5, 7)), 2 * 2 * 3 * 5 * 7),
    (lambda: tf.matmul(_Input(2, 5, 3), _Input(2, 5, 7), transpose_a=True),
     2 * 2 * 3 * 5 * 7),
    (lambda: tf.matmul(_Input(2, 3, 5), _Input(2, 7, 5), transpose_b=True),
     2 * 2 * 3 * 5 * 7),
    (lambda: tf.matmul(_Input(2, 3, 5), _Input(1, 5, 7)), 2 * 2 * 3 * 5 * 7),
    # Attention: products over the head's dimension.
    (lambda: tf.einsum('BTNH,BSNH->BNTS', _Input(2, 3, 5, 7),
                       _Input(2, 11, 5, 7)), 2 * 2 * 3 * 5 * 7 * 11),
    (lambda: tf.einsum('...d,df->...f', _Input(2, 3, 5), _Input(5, 7)),
     2 * 2 * 3 * 5 * 7),
    # A product without a sum; a sum without a product.
    (lambda: tf.einsum('a,b->ab', _Input(3), _Input(5)), 3 * 5),
    (lambda: tf.raw_ops.Einsum(inputs=[_Input(3, 5)], equation='ab->a'), 3 * 5),
    (lambda: tf.nn.conv2d(_Input(2, 8, 6, 3), _Input(5, 3, 3, 7), 2, 'SAME'),
     2 * (2 * 4 * 3 * 7) * (5 * 3 * 3)),
    (lambda: tf.nn.depthwise_conv2d(_Input(2, 8, 6, 3), _Input(5, 3, 3, 2),
                                    [1, 1, 1, 1], 'SAME'),
     2 * (2 * 8 * 6 * 3 * 2) * (5 * 3)),
    (lambda: tf.nn.bias_add(_Input(3, 5), _Input(5)), 15),
    (lambda: _Input(3, 5) + _Input(5), 15),
    (lambda: tf.reduce_sum(_Input(3, 5), 1), 15 - 3),
    (lambda: tf.nn.softmax(_Input(3, 5)), 5 * 15),
    (lambda: tf.nn.max_pool(_Input(2, 8, 6, 3), 2, 2, 'SAME'),
     2 * 4 * 3 * 3 * 4),
    # Integers, and data that is moved.
    (lambda: _Input(3, dtype=tf.int32) * 2, 0),
    (lambda: tf.gather(_Input(7, 5), _Input(3, dtype=tf.int32)), 0),
    (lambda: tf.transpose(tf.concat([_Input(3, 5), _Input(3, 5)], 0)), 0),
])
def testForward(build, flops):
  assert _Count(build) == (flops, set())


@pytest.mark.parametrize('build,shapes,flops', [
    (tf.matmul, [(3, 5), (5, 7)], 2 * (2 * 3 * 5 * 7)),
    (tf.matmul, [(2, 3, 5), (2, 5, 7)], 2 * (2 * 2 * 3 * 5 * 7)),
    (lambda x, w: tf.nn.conv2d(x, w, 2, 'VALID'), [(2, 9, 7, 3), (5, 3, 3, 11)],
     2 * (2 * (2 * 3 * 3 * 11) * (5 * 3 * 3))),
    (lambda x, w: tf.nn.depthwise_conv2d(x, w, [1, 1, 1, 1], 'SAME'),
     [(2, 8, 6, 3), (5, 3, 3, 2)], 2 * (2 * (2 * 8 * 6 * 3 * 2) * (5 * 3))),
    (tf.nn.relu, [(3, 5)], 15),
    (tf.tanh, [(3, 5)], 3 * 15),
    (tf.nn.bias_add, [(3, 5), (5,)], 15 - 5),
    # Rows of the table are added up.
    (lambda x: tf.gather(x, tf.constant([1, 1, 2])), [(7, 5)], 3 * 5),
    # (dy - sum(dy y)) y: a product, a sum, a difference, a product.
    (tf.nn.softmax, [(3, 5)], 15 + (15 - 3) + 15 + 15),
])
def testGradient(build, shapes, flops):
  assert _Gradient(build, *shapes) == flops


@pytest.mark.parametrize('training,forward,backward', [(True, 7, 9),
                                                       (False, 2, 9)])
def testFusedBatchNorm(training, forward, backward):
  moments = {} if training else dict(mean=[0.] * 7, variance=[1.] * 7)

  def Build(x, scale, offset):
    return tf.compat.v1.nn.fused_batch_norm(
        x, scale, offset, is_training=training, **moments)[0]

  elements = 2 * 3 * 5 * 7
  shapes = [(2, 3, 5, 7), (7,), (7,)]
  assert _Count(lambda: Build(*[_Input(*s) for s in shapes])) == (
      forward * elements, set())
  assert _Gradient(Build, *shapes) == backward * elements


def testTensorFlowsProfilerIsWrongWhereThisCounts():
  # Or else the count of our own can go.
  with tf.Graph().as_default():
    y = tf.matmul(_Input(2, 5, 3), _Input(2, 5, 7), transpose_a=True)
    assert flop_counts.Flops(y.op) == 2 * 2 * 3 * 5 * 7
    assert lingvo_compat.ProfilerFlops(y.op) != flop_counts.Flops(y.op)


def testUnknownOperatorsAreNamed():
  flops, uncounted = _Count(
      lambda: tf.linalg.inv(_Input(3, 3)) + _Input(3, 3))
  assert flops == 9 and uncounted == {'MatrixInverse'}


def testUnknownShapesAreNamed():
  assert _Count(lambda: tf.tanh(_Input(None, 3))) == (0, {'Tanh'})


def _Power(x, n):
  return tf.while_loop(lambda i, y: i < n, lambda i, y: (i + 1, y @ x),
                       (0, x))[1]


@pytest.mark.parametrize('loop,times', [
    (lambda step: tf.while_loop(lambda i, _: i < 5, lambda i, y:
                                (i + 1, step(y)), (0, _Input(4, 4))), 5),
    (lambda step: tf.while_loop(lambda i, _: i <= 9, lambda i, y:
                                (i + 2, step(y)), (0, _Input(4, 4))), 5),
    (lambda step: tf.while_loop(lambda i, _: i > 0, lambda i, y:
                                (i - 3, step(y)), (10, _Input(4, 4))), 4),
    (lambda step: tf.while_loop(lambda _: True, lambda y: step(y), (_Input(
        4, 4),), maximum_iterations=6), 6),
    # A loop in a loop.
    (lambda step: tf.while_loop(
        lambda i, _: i < 3, lambda i, y: (i + 1, tf.while_loop(
            lambda j, _: j < 7, lambda j, z: (j + 1, step(z)), (0, y))[1]),
        (0, _Input(4, 4))), 21),
])
def testLoopsCountTimesTheirIterations(loop, times):
  assert _Count(lambda: loop(lambda y: y @ y)) == (times * 2 * 4**3, set())


def testGradientOfALoop():
  # Of y x for each of 5 iterations: two products, and x's gradients added up.
  assert _Gradient(lambda x: _Power(x, 5), (4, 4)) == (
      5 * (2 * 2 * 4**3 + 4 * 4) + 4 * 4)


def testLoopOfUnknownLengthIsNamed():
  flops, uncounted = _Count(
      lambda: _Power(_Input(4, 4), _Input(dtype=tf.int32)))
  assert flops == 2 * 4**3 and uncounted in ({'While'}, {'StatelessWhile'})


def testTheDearestBranchCounts():
  x = lambda: _Input(4, 4)
  assert _Count(
      lambda: tf.cond(_Input(dtype=tf.bool), lambda: x() @ x(), lambda: x())
  ) == (2 * 4**3, set())


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
