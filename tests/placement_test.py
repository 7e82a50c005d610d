"""Where things really are: read from placed graphs, not from device scopes."""

import sys

import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import py_utils
import pytest

import lingvo_gpipe
from lingvo_gpipe import placement
from lingvo_gpipe import stacked_recurrent
from tests import toy_layers

_V1 = tf.compat.v1
_GPUS = [f'/job:localhost/replica:0/task:0/device:GPU:{i}' for i in range(4)]


# (schedule, recompute).
_MODES = [('gpipe', r) for r in stacked_recurrent.RECOMPUTE_MODES] + [
    ('1f1b', r) for r in ('never', 'always')
]


def _Loss(theta, outputs, targets):
  del theta, targets
  return {'loss': (tf.reduce_sum(tf.square(outputs[0])), 1.)}


def _Train(net, inputs):
  """One step of Adam; returns (train op, gradients by variable)."""
  loss, _ = net.FPropLoss(
      net.theta, _Loss, py_utils.NestedMap(), py_utils.NestedMap(y=inputs[1]),
      *inputs)['loss']
  optimizer = _V1.train.AdamOptimizer(0.1)
  # Ungated, as Lingvo trains: nothing is computed that no variable asks for.
  pairs = optimizer.compute_gradients(
      loss, gate_gradients=optimizer.GATE_NONE,
      colocate_gradients_with_ops=True)
  return optimizer.apply_gradients(pairs), pairs


def _Net(k, **kwargs):
  return lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', num_stages=k, num_micro_batches=4,
      layers=[toy_layers.Dense.Params().Set(name=f'dense_{i}', dim=64)
              for i in range(k)], **kwargs).Instantiate()


def _Inputs():
  return tf.ones([8, 64]), tf.range(8)


def _Stage(variable_name):
  return int(variable_name.split('dense_')[1][0])


@pytest.mark.parametrize('schedule,recompute', _MODES)
def testPlacedGraph(devices, schedule, recompute):
  k = 3
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    train, _ = _Train(
        _Net(k, schedule=schedule, recompute=recompute), _Inputs())
  names = devices.Names(k)
  placed = devices.Placed(graph, k, train)
  assert sorted(placed) == names
  for stage, device in enumerate(names):
    nodes = placed[device].node
    ops = [n.op for n in nodes]
    # Weights and slots (w, b, each with m and v) are on their stage's device,
    # and are updated there.
    handles = [n.name for n in nodes if n.op == 'VarHandleOp' and
               'dense_' in n.name]
    assert len(handles) == 6, handles
    assert {_Stage(h) for h in handles} == {stage}
    assert ops.count('ResourceApplyAdam') == 2
    # So are the cell, its recomputation (not of a product that is kept) and its
    # gradients: of the weights and, where another stage waits for them, of the
    # inputs. With `except_last` one micro-batch has all but the recomputation
    # to itself.
    products = [op for op in ops if op.endswith('MatMul')]  # Or _MklNativeMatMul.
    last = schedule == '1f1b' and stage == k - 1
    again = recompute in ('always', 'except_last') and not last
    alone = recompute == 'except_last'
    assert len(products) == again + (2 + (stage > 0)) * (1 + alone)
    assert ops.count('SoftsignGrad') == 1 + alone


@pytest.mark.parametrize('schedule,recompute', _MODES)
def testOnlyBoundariesCrossAndNoInt32(devices, schedule, recompute):
  k, micro = 3, 2
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    train, _ = _Train(
        _Net(k, schedule=schedule, recompute=recompute), _Inputs())
  sent = []
  for partition in devices.Placed(graph, k, train).values():
    for node in partition.node:
      if node.op in ('_Send', '_HostSend'):
        op, _, index = node.input[0].partition(':')
        try:
          shape = graph.get_operation_by_name(op).outputs[int(index or 0)].shape
        except KeyError:
          shape = tf.TensorShape([])  # Stands for a control edge.
        sent.append((tf.as_dtype(node.attr['T'].type), shape.num_elements()))
  # From each stage to the next an activation and the int64 passenger, and a
  # gradient back. The rest is scalars: predicates, counters, control edges.
  boundary = micro * 64
  big = [(dtype, n) for dtype, n in sent if n is None or n > 1]
  times = (k - 1) * (1 + (recompute == 'except_last'))
  # Inside the loop the loss sees that it has no use for the passenger.
  passengers = times - (schedule == '1f1b')
  assert sorted(big, key=str) == (
      [(tf.float32, boundary)] * 2 * times + [(tf.int64, micro)] * passengers)
  if recompute == 'always':
    assert tf.int32 not in [dtype for dtype, _ in sent]


def testEachReplicaHasDevicesOfItsOwn():
  cluster = cluster_factory.ForTestingWorker(
      mode='sync', job='trainer_client', split_size=2, cpus=4)
  with tf.Graph().as_default() as graph, cluster:
    net = _Net(2)
    for replica in range(2):
      with cluster_factory.SetModelSplit(replica), tf.name_scope(f'r{replica}'):
        _Train(net, _Inputs())
        assert [d[-5:] for d in net.stage_devices] == [
            f'CPU:{2 * replica + k}' for k in range(2)]
  for op in graph.get_operations():
    if op.type == 'MatMul':
      assert (op.device[-1] in '23') == op.name.startswith('r1'), op.name


def testGpuNames():
  # Built, not run: the devices that ops ask for need no GPU.
  with tf.Graph().as_default() as graph:
    net = _Net(4, stage_devices=_GPUS)
    _, pairs = _Train(net, _Inputs())
    slots = [v for v in tf.global_variables() if '/Adam' in v.name]
  for v in [v for _, v in pairs] + slots:
    assert v.device == _GPUS[_Stage(v.name)]
  for g, v in pairs:
    assert g.device == _GPUS[_Stage(v.name)], v.name
  assert len(slots) == 16
  assert net.stage_devices == _GPUS
  loops = ('Enter', 'Merge', 'NextIteration')
  devices = [op.device for op in graph.get_operations() if op.type in loops]
  assert set(_GPUS) <= set(devices)
  assert '' not in devices


def testMoreStagesThanDevicesGoRound():
  with tf.Graph().as_default():
    net = _Net(4, stage_devices=_GPUS[:2])
  assert net.stage_devices == [_GPUS[0], _GPUS[1], _GPUS[0], _GPUS[1]]


def testNoDevices():
  with tf.Graph().as_default(), pytest.raises(ValueError, match='empty list'):
    _Net(2, stage_devices=[])


def testCopyOfAWeightElsewhereIsSkipped():
  with tf.Graph().as_default():
    with tf.device(_GPUS[1]):
      v = tf.get_variable('v', [2], use_resource=True)
      value = tf.identity(v)
    with tf.device(_GPUS[0]):
      copy = tf.identity(value)
    assert placement.AtHome(copy, _GPUS[1]) is value
    # A weight that lives elsewhere has to be fetched from there.
    assert placement.AtHome(copy, _GPUS[2]).op.type == 'Identity'


@pytest.mark.parametrize('device,host', [
    ('/job:worker/replica:0/task:3/device:GPU:1',
     '/job:worker/replica:0/task:3/device:CPU:0'),
    ('/job:worker/task:3/device:CPU:2', '/job:worker/task:3/device:CPU:2'),
    ('', ''),
])
def testHost(device, host):
  assert placement.HostOf(device) == host


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
