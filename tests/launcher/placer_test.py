"""Tests for the placement of operations that nobody placed."""
import lingvo.compat as tf
import pytest

from lingvo_gpipe.launcher import placer


@pytest.fixture(name='device', autouse=True)
def _Device():
  """In a graph with the placer for /cpu:0; returns what shortens a device's name."""
  with tf.Graph().as_default(), tf.device(placer.StagePlacer('/device:CPU:0').DeviceFunction):
    yield lambda x: x.device.rpartition('/device:')[2]


def testFollowsTheHeaviestInput(device):
  with tf.device('/device:CPU:1'):
    gradient = tf.zeros([3, 4]) + 1.
  scale = tf.identity(tf.stack([2., 3.]))[0]
  assert device(gradient) == 'CPU:1'
  assert device(scale) == 'CPU:0'
  assert device(scale * gradient) == 'CPU:1'
  assert device(gradient * scale) == 'CPU:1'
  assert device(tf.reduce_sum(gradient) + scale) == 'CPU:1'  # Equally heavy: the first.
  assert device(scale + tf.reduce_sum(gradient)) == 'CPU:0'


def testUnknownShapesAreHeavy(device):
  with tf.device('/device:CPU:1'):
    x = tf.placeholder(tf.float32, [None, 2])
  with tf.device('/device:CPU:2'):
    y = tf.zeros([1000, 2]) + 1.
  assert device(tf.concat([y, x], axis=0)) == 'CPU:1'


def testAVariableStaysAndItsUpdatesComeToIt(device):
  with tf.device('/device:CPU:1'):
    w = tf.get_variable('w', [1], use_resource=True)
  with tf.device('/device:CPU:2'):
    gradient = tf.zeros([1]) + 1.
  assert device(w.assign_add(gradient).op) == 'CPU:1'


def testSlotsLieBesideTheirVariable(device):
  with tf.device('/device:CPU:1'):
    w = tf.get_variable('layer/w', [4], use_resource=True)
  assert device(tf.get_variable('layer/w/Adam', [4], use_resource=True)) == 'CPU:1'
  assert device(tf.get_variable('layer/w/deeper/Adam_1', [4], use_resource=True)) == 'CPU:1'
  assert device(tf.get_variable('task/layer/w/grad_accumulator', [4], use_resource=True)) == 'CPU:1'
  assert device(tf.get_variable('layer/w2', [4], use_resource=True)) == 'CPU:0'
  assert device(w) == 'CPU:1'


def testFunctionsAndConstantsAreLeftAlone(device):
  seen = []

  @tf.function(autograph=False)
  def Double(x):
    y = x + x
    seen.append(y.op.device)
    return y

  with tf.device('/device:CPU:1'):
    x = tf.zeros([2]) + 1.
  y = Double(x)
  assert seen == ['']
  assert device(y) == 'CPU:1'
  assert device(tf.constant(1.)) == ''
