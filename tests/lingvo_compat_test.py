"""The private names of Lingvo and TensorFlow, on the stack that is installed."""

import sys

import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import py_utils
import pytest

from lingvo_gpipe import lingvo_compat


def testScratchGraphListsWhatItCaptures():
  with tf.Graph().as_default():
    outer = tf.constant(1.)
    graph = lingvo_compat.ScratchGraph('scratch')
    with graph.as_default():
      _ = outer + tf.constant(2.)
    assert [x for x, _ in graph.captures] == [outer]


def testLoopsArePartOfTheGraph():

  def LoopOps():
    with tf.Graph().as_default() as graph:
      tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
    return {op.type for op in graph.get_operations()}

  before = tf.compat.v1.control_flow_v2_enabled()
  with lingvo_compat.GraphLoops():
    assert 'NextIteration' in LoopOps()
  assert tf.compat.v1.control_flow_v2_enabled() == before
  with pytest.raises(KeyError):
    with lingvo_compat.GraphLoops():
      raise KeyError
  assert tf.compat.v1.control_flow_v2_enabled() == before


def testNormsTakeNoPowers():
  with tf.Graph().as_default() as graph, tf.Session() as sess:
    values = [tf.constant([3., 4.]), tf.IndexedSlices(tf.constant([[12.]]), tf.constant([0]))]
    with lingvo_compat.FastNorms():
      norm = tf.sqrt(py_utils.SumSquared(values))
      assert sess.run(norm) == 13.
    assert 'Pow' not in {op.type for op in graph.get_operations()}
    assert sess.run(tf.sqrt(py_utils.SumSquared(values))) == 13.


def testKnowsTheBodyOfAFunction():
  seen = []

  @tf.function(autograph=False)
  def Body():
    graph = tf.get_default_graph()
    seen.append((lingvo_compat.InFunction(graph), lingvo_compat.IsCalled(graph)))
    return tf.constant(0)

  with tf.Graph().as_default() as graph:
    Body()
    assert not lingvo_compat.InFunction(graph) and not lingvo_compat.IsCalled(graph)
    scratch = lingvo_compat.ScratchGraph('scratch')
  assert set(seen) == {(True, True)}
  assert lingvo_compat.InFunction(scratch) and not lingvo_compat.IsCalled(scratch)


def testClusterIsTheClassBehindTheFactory():
  assert issubclass(type(cluster_factory.Current()), lingvo_compat.Cluster)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
