"""Functions that operators call: which, and how often they run."""

import sys

import lingvo.compat as tf
import pytest

from lingvo_gpipe import called_functions
from lingvo_gpipe import lingvo_compat

_LOOPS = ('While', 'StatelessWhile')


def _Operators(build):
  """(operators of the graph that build makes, its Scope)."""
  with tf.Graph().as_default():
    with lingvo_compat.ScratchGraph('test').as_default() as graph:
      build()
    return graph.get_operations(), called_functions.Scope(graph)


def _Times(build):
  """How often the last loop that build makes runs, or None."""
  operators, scope = _Operators(build)
  loop = [op for op in operators if op.type in _LOOPS][-1]
  call, = scope.Calls(loop)
  return call.times


def _Loop(goes_on, step=1, start=0):
  """The last value of a counter."""
  return tf.while_loop(goes_on, lambda i: (i + step,), (start,))


def _Int(dtype=tf.int32):
  return tf.placeholder(dtype, [])


def _Four():
  """From a function."""
  return tf.function(lambda: tf.constant(4))()


@pytest.mark.parametrize('build,times', [
    (lambda: _Loop(lambda i: i < 5), 5),
    (lambda: _Loop(lambda i: i >= 2, -3, 11), 4),
    # It never goes on.
    (lambda: _Loop(lambda i: i < 5, start=7), 0),
    # It never ends.
    (lambda: _Loop(lambda i: i < 5, -1), None),
    (lambda: _Loop(lambda i: i < _Int()), None),
    # Two limits: the nearer one.
    (lambda: tf.while_loop(lambda i, j: (i < 9) & (j < 6), lambda i, j:
                           (i + 1, j + 2), (0, 0)), 3),
    # What the limit goes through, outside and inside of the condition.
    (lambda: _Loop(lambda i, n=tf.constant(5, tf.int64): i < tf.cast(n, tf.int32)), 5),
    (lambda: _Loop(lambda i, n=_Four(): i < n), 4),
    # The last value of another loop: 2, 5, 8, 11, 14.
    (lambda: _Loop(lambda i, n=_Loop(lambda i: i < 12, 3, 2): i < n), 14),
])
def testIterations(build, times):
  assert _Times(build) == times


def testALoopInABranchKnowsItsLimit():

  def Build():
    n, unused = tf.constant(5), tf.constant(7)
    tf.cond(_Int(tf.bool), lambda: _Loop(lambda i: i < n) + unused, lambda: n)

  operators, scope = _Operators(Build)
  branch = [op for op in operators if op.type in ('If', 'StatelessIf')][0]
  body = scope.Calls(branch)[0].body
  loop = [op for op in body.operators if op.type in _LOOPS][0]
  assert body.Calls(loop)[0].times == 5


@pytest.mark.parametrize('random', [False, True])
def testAllBranchesAreThere(random):
  # With a stateful operator inside, the operators have another type.
  branch = lambda: (tf.random.uniform([]) if random else tf.constant(1.)) * 2.
  for build, number in (
      (lambda: tf.cond(_Int(tf.bool), branch, branch), 2),
      (lambda: tf.switch_case(_Int(), [branch] * 3), 3)):
    operators, scope = _Operators(build)
    calls = [scope.Calls(op) for op in operators]
    assert [[c.times for c in found] for found in calls if found] == [[1] * number]


def testOnlyWhatTheOutputsNeed():

  @tf.function
  def Function(x):
    tf.exp(x)
    return tf.tanh(x)

  operators, scope = _Operators(lambda: Function(tf.placeholder(tf.float32, [3])))
  call, = [c for op in operators for c in scope.Calls(op)]
  types = [op.type for op in call.body.operators]
  assert 'Tanh' in types and 'Exp' not in types


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
