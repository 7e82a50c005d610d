"""A SavedModel has what its outputs need, and nothing else."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
import pytest

from lingvo_gpipe import saved_model


# There is none of this number where the model is loaded.
_DEVICE = '/job:localhost/replica:0/task:0/device:CPU:1'


def _Python(x, name):
  return tf.numpy_function(np.abs, [x], x.dtype, name=name)


@pytest.fixture(name='graph')
def _Graph():
  """Two weights, and what no output needs: another one, Python, a device."""
  graph = tf.Graph()
  with graph.as_default():
    tf.get_variable('unused', [7], initializer=tf.zeros_initializer())
    tf.data.make_initializable_iterator(
        tf.data.Dataset.range(3).map(
            lambda x: _Python(x, 'unused_too'), num_parallel_calls=1))
    with tf.device(_DEVICE):
      tf.get_variable('w', [2], initializer=tf.constant_initializer([2., 3.]))
      tf.get_variable('b', [], initializer=tf.constant_initializer(5.))
  return graph


def _Checkpoint(graph, folder):
  with graph.as_default(), tf.Session(
      config=tf.config_pb2.ConfigProto(device_count={'CPU': 2})) as session:
    session.run(tf.global_variables_initializer())
    return tf.train.Saver().save(session, str(folder / 'ckpt'))


def _Variable(graph, name):
  return next(v for v in graph.get_collection('variables') if v.op.name == name)


def _Nodes(function):
  graph_def = function.graph.as_graph_def()
  nodes = list(graph_def.node)
  for f in graph_def.library.function:
    nodes += f.node_def
  return nodes


def testOnlyWhatIsNeeded(graph, tmp_path):
  w, b = _Variable(graph, 'w'), _Variable(graph, 'b')
  with graph.as_default():
    x = tf.placeholder(tf.float32, [None, 2])
    n = tf.placeholder(tf.int32, [])
    unread = tf.placeholder(tf.float32, [3])
    _, y = tf.while_loop(
        lambda i, _: i < n, lambda i, y: (i + 1, y * w), (0, x))
    with tf.device(_DEVICE):
      shifted = x + b * w
    signatures = {
        'powers': saved_model.Signature(
            dict(x=x, n=n, unread=unread), dict(y=y, same=x)),
        'shifted': saved_model.Signature(dict(x=x), dict(y=shifted)),
    }
  path = _Checkpoint(graph, tmp_path)
  saved_model.Save(signatures, {}, path, str(tmp_path / 'out'))
  loaded = tf.compat.v2.saved_model.load(str(tmp_path / 'out'))
  assert sorted(loaded.weights) == ['b', 'w']
  powers, shifted = [loaded.signatures[k] for k in ('powers', 'shifted')]
  x = np.array([[1., 2.], [3., 4.], [5., 6.]], np.float32)
  out = powers(x=tf.constant(x), n=tf.constant(2), unread=tf.zeros([3]))
  np.testing.assert_allclose(out['y'], x * [4., 9.])
  np.testing.assert_allclose(out['same'], x)
  np.testing.assert_allclose(
      shifted(x=tf.constant(x[:1]))['y'], x[:1] + [10., 15.])
  nodes = _Nodes(powers) + _Nodes(shifted)
  assert {n.device for n in nodes} == {''}
  ops = {n.op for n in nodes}
  assert ops & {'While', 'StatelessWhile'}
  assert not ops & {'EagerPyFunc', 'PyFunc', 'IteratorV2', 'RangeDataset'}


def testAverages(graph, tmp_path):
  """A variable has the value of another one of the checkpoint."""
  with graph.as_default():
    y = _Variable(graph, 'b') * 2.
    tf.get_variable('b/average', [], initializer=tf.constant_initializer(9.))
  path = _Checkpoint(graph, tmp_path)
  saved_model.Save({'double': saved_model.Signature({}, dict(y=y))},
                   {'b': 'b/average'}, path, str(tmp_path / 'out'))
  loaded = tf.compat.v2.saved_model.load(str(tmp_path / 'out'))
  assert loaded.signatures['double']()['y'].numpy() == 18.


def testWhatRunsNowhereElse(graph, tmp_path):
  with graph.as_default():
    x = tf.placeholder(tf.float32, [], 'x')
    outside = _Python(x, 'python')
    inside = tf.cond(x > 0., lambda: x, lambda: _Python(x, 'python'))
    asserted = py_utils.assert_shape_match(tf.shape(x), [])  # Lingvo's own op.
    lingvo = py_utils.with_dependencies([asserted], x)
  for y, op in [(outside, "'python.*' is a .*PyFunc"),
                (inside, "'python.*' is a .*PyFunc"),
                (lingvo, '.* is a AssertShapeMatch')]:
    with pytest.raises(ValueError, match=f'The op {op}'):
      saved_model.Save({'y': saved_model.Signature(dict(x=x), dict(y=y))}, {},
                       'not looked at', str(tmp_path / 'out'))
  assert not (tmp_path / 'out').exists()


def testAnotherModelsCheckpoint(graph, tmp_path):
  with graph.as_default():
    y = _Variable(graph, 'b') * 2.
  path = _Checkpoint(graph, tmp_path)
  for names, message in [({'b': 'c'}, 'the variable c is missing'),
                         ({'b': 'w'}, r'the variable w is \[2\] in the')]:
    with pytest.raises(ValueError, match=message):
      saved_model.Save({'y': saved_model.Signature({}, dict(y=y))}, names, path,
                       str(tmp_path / 'out'))


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
