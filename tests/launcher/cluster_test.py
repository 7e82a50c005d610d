"""Tests for the cluster whose devices are the stages, and for what it places where."""
import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import optimizer
import pytest

from lingvo_gpipe.launcher import cluster
from lingvo_gpipe.launcher import pipelines
from lingvo_gpipe.launcher import placer
from lingvo_gpipe.launcher import stage_table
from tests.testdata import my_models

_LOCAL = '/job:localhost/replica:0/task:0/device:'


@pytest.fixture(name='stage_cluster', autouse=True)
def _StageCluster():
  """Makes StageCluster Lingvo's cluster for a test, as the launcher does; returns a function that makes one."""
  before = cluster_factory.Cluster
  cluster_factory.SetCluster(cluster.StageCluster)

  def Make(devices, job='trainer_client'):
    p = cluster.StageCluster.Params().Set(mode='sync', job=job, stage_devices=[_LOCAL + d for d in devices])
    p.evaler.replicas = 1
    return cluster_factory.Cluster(p)

  yield Make
  cluster_factory.SetCluster(before)


@pytest.mark.parametrize('job', ['trainer_client', 'controller', 'evaler'])
def testEveryJobSeesTheStagesAsOneSplit(stage_cluster, job):
  c = stage_cluster(['GPU:2', 'GPU:0'], job)
  assert c.available_devices.tolist() == [[_LOCAL + 'GPU:2', _LOCAL + 'GPU:0']]
  assert (c.num_replicas, c.num_splits_per_client, c.num_devices_per_split, c.total_worker_devices) == (1, 1, 2, 2)
  assert [c.WorkerDeviceInModelSplit(i)[-5:] for i in range(3)] == ['GPU:2', 'GPU:0', 'GPU:2']
  with c, cluster_factory.SetModelSplit(0) as split:
    assert split.WorkerDeviceInModelSplit(1) == _LOCAL + 'GPU:0'


def testWithoutStageDevicesItIsLingvos(stage_cluster):
  c = stage_cluster([])
  assert c.num_devices_per_replica == 1
  assert 'CPU:0' in c.available_devices[0, 0]
  assert not isinstance(getattr(c.GetPlacer(), '__self__', None), placer.StagePlacer)


def testMissingDevice(stage_cluster):
  with tf.Session() as sess:
    stage_cluster(['CPU:0']).InitDevices(sess)
    with pytest.raises(ValueError, match='stage device .*CPU:7 does not exist. TensorFlow found .*CPU:0'):
      stage_cluster(['CPU:0', 'CPU:7']).InitDevices(sess)


def _Build(stage_cluster, params, devices):
  """Returns (graph, model) of a training step."""
  params.task.pipeline.num_stages = len(devices)
  with tf.Graph().as_default() as graph, stage_cluster(devices) as c, tf.device(c.GetPlacer()):
    model = params.Instantiate()
    model.ConstructFPropBPropGraph()
  return graph, model


def _Params(optimizer_params):
  params = my_models.Small().Model()
  params.input = my_models.Small().Train()
  params.task.train.optimizer = optimizer_params
  params.task.train.clip_gradient_norm_to_value = 1.
  return params


@pytest.mark.parametrize('device_type', ['CPU', 'GPU'])
@pytest.mark.parametrize('name', ['Adam', 'Momentum', 'RMSProp', 'Accumulator', 'Adagrad'])
def testStagesKeepWhatIsTheirs(stage_cluster, name, device_type):
  """Variables, slots and updates are on the stage's device, and no weight or gradient of one crosses."""
  if name == 'Accumulator':
    optimizer_params = optimizer.Accumulator.Params().Set(
        accum_steps=2, optimizer_tpl=optimizer.Momentum.Params())
  else:
    optimizer_params = getattr(optimizer, name).Params()
  devices = [f'{device_type}:0', f'{device_type}:1']
  graph, model = _Build(stage_cluster, _Params(optimizer_params), devices)
  layer, = pipelines.FindLayers(model)
  stage_of = {name: stage for stage in layer.stages for name in stage.layers}
  with graph.as_default():
    variables = tf.global_variables()
  names = {v.op.name: v.device for v in variables}
  slots = [n for n in names if any(n.startswith(other + '/') for other in names)]
  assert slots or name not in ('Adam', 'Momentum', 'RMSProp', 'Accumulator')
  for variable in variables:
    layer_name = [part for part in variable.op.name.split('/') if part in stage_of]
    expected = stage_of[layer_name[0]].device if layer_name else layer.stages[0].device
    assert variable.device == expected, variable.op.name

  if name == 'Accumulator':
    return  # It updates all variables within one tf.cond, which has one device.
  weights = [tuple(v.shape.as_list()) for v in model.vars.Flatten() if v.shape.rank == 2]
  for op in graph.get_operations():
    for x in op.inputs:
      if x.dtype == tf.resource and op.device:
        assert op.device == x.op.device, op.name
      if op.device and x.op.device and op.device != x.op.device and x.shape.rank is not None:
        assert tuple(x.shape.as_list()) not in weights, (op.name, x.name)


def testStageTable(stage_cluster):
  _, model = _Build(stage_cluster, _Params(optimizer.SGD.Params()), ['CPU:0', 'CPU:1', 'CPU:2'])
  lines = stage_table.Format(model).splitlines()
  assert lines[0] == 'stage  device  layers          parameters   cost'
  assert [line.split()[:2] for line in lines[1:4]] == [['0', 'CPU:0'], ['1', 'CPU:1'], ['2', 'CPU:2']]
  assert '2: fc' in ''.join(lines[1:4]) and '1: fc' in ''.join(lines[1:4])
  assert lines[4:] == ['658 parameters']
