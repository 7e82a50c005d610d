"""Tests for which device holds which stage."""
import pytest

from lingvo_gpipe.launcher import stage_devices
from lingvo_gpipe.launcher import user_errors

_LOCAL = '/job:localhost/replica:0/task:0/device:'
_REMOTE = '/job:worker/replica:0/task:3/device:GPU:1'


@pytest.mark.parametrize('wanted, num_stages, num_gpus, expected', [
    (None, 2, 0, ['CPU:0', 'CPU:1']),
    (None, 2, 1, ['CPU:0', 'CPU:1']),
    (None, 2, 4, ['GPU:0', 'GPU:1']),
    ('cpu', 3, 4, ['CPU:0', 'CPU:1', 'CPU:2']),
    ('GPU', 1, 4, ['GPU:0']),
    ('gpu:3,gpu:0', 2, 4, ['GPU:3', 'GPU:0']),
    (' cpu:0 , /device:CPU:2', 2, 0, ['CPU:0', 'CPU:2']),
    ('cpu:0,cpu:0', 2, 0, ['CPU:0', 'CPU:0']),
    ('gpu:0,gpu:1', 4, 2, ['GPU:0', 'GPU:1', 'GPU:0', 'GPU:1']),
])
def testResolve(wanted, num_stages, num_gpus, expected):
  assert stage_devices.Resolve(wanted, num_stages, num_gpus) == [_LOCAL + name for name in expected]


def testOtherMachines():
  wanted = f'{_REMOTE},{_LOCAL}GPU:0'
  assert stage_devices.Resolve(wanted, 2, 1) == wanted.split(',')
  assert stage_devices.ShortName(_REMOTE) == _REMOTE
  assert stage_devices.ShortName(_LOCAL + 'GPU:0') == 'GPU:0'


@pytest.mark.parametrize('wanted, num_stages, num_gpus, message', [
    ('gpu', 2, 0, 'needs 2 GPUs, one a stage, and TensorFlow found none'),
    ('gpu', 4, 3, 'needs 4 GPUs, one a stage, and TensorFlow found 3'),
    ('gpu:0,gpu:3', 2, 3, 'names GPU:3, and TensorFlow found 3 GPUs'),
    ('cpu:0,cpu:1', 3, 0, 'names 2 devices for 3 stages'),
    ('cpu:0,cpu:1', 1, 0, 'set --num_stages=2'),
    ('gpu:0,tpu:1', 2, 8, "'tpu:1' is not a device"),
    ('gpus', 1, 8, "'gpus' is not a device"),
])
def testRefuses(wanted, num_stages, num_gpus, message):
  with pytest.raises(user_errors.UserError, match=message):
    stage_devices.Resolve(wanted, num_stages, num_gpus)


def testNumGpusIsTheMachines():
  num_gpus = stage_devices.NumGpus()
  stage_devices.CheckNumGpus(num_gpus)
  with pytest.raises(user_errors.UserError, match=f'--worker_gpus={num_gpus + 1}, and TensorFlow found'):
    stage_devices.CheckNumGpus(num_gpus + 1)


def testDeviceCount():
  assert stage_devices.DeviceCount([]) == {'CPU': 1}
  assert stage_devices.DeviceCount([_LOCAL + 'CPU:0', _LOCAL + 'CPU:3']) == {'CPU': 4, 'GPU': 0}
  assert stage_devices.DeviceCount([_LOCAL + 'GPU:0', _LOCAL + 'GPU:1']) == {'CPU': 1}
