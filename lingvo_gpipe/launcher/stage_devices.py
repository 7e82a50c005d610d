"""Which device holds which stage, from what the command line asks and what the machine has."""
import re

from lingvo_gpipe.launcher import user_errors

_LOCAL = '/job:localhost/replica:0/task:0/device:'


def NumGpus():
  """Returns how many GPUs TensorFlow can use in this process."""
  import lingvo.compat as tf  # pylint: disable=g-import-not-at-top
  return len(tf.config.list_physical_devices('GPU'))


def CheckNumGpus(worker_gpus):
  """Raises a UserError where this machine's GPUs are not as many as --worker_gpus says: Lingvo takes all of them."""
  num_gpus = NumGpus()
  if worker_gpus != num_gpus:
    raise user_errors.UserError(
        f'--worker_gpus={worker_gpus}, and TensorFlow found {_Count(num_gpus, "GPU") if num_gpus else "no GPU"}. Give '
        'the number that there is; the variable CUDA_VISIBLE_DEVICES hides some. Without --worker_gpus, '
        '--stage_devices picks devices by name.')


def Resolve(wanted, num_stages, num_gpus):
  """Returns the full name of each stage's device.

  Args:
    wanted: --stage_devices: None, 'cpu', 'gpu' or a comma list of devices, each as 'gpu:0', '/device:GPU:0' or a full
      name with job, replica and task. Where there are several stages for each, they are interleaved: stage i is on
      device i modulo their number.
    num_stages: int.
    num_gpus: how many GPUs there are on this machine.

  Returns:
    A list of num_stages names.

  Raises:
    UserError: the devices don't exist, or their number isn't that of the stages.
  """
  if not wanted:
    wanted = 'gpu' if num_gpus >= num_stages else 'cpu'
  if wanted.lower() == 'cpu':
    return [_LOCAL + f'CPU:{i}' for i in range(num_stages)]
  if wanted.lower() == 'gpu':
    if num_gpus < num_stages:
      raise user_errors.UserError(
          f'--stage_devices=gpu needs {_Count(num_stages, "GPU")}, one a stage, and TensorFlow found '
          f'{num_gpus or "none"}. --stage_devices=cpu runs the stages on virtual CPU devices.')
    return [_LOCAL + f'GPU:{i}' for i in range(num_stages)]
  devices = [_Full(d.strip()) for d in wanted.split(',')]
  if len(devices) > num_stages or num_stages % len(devices):
    raise user_errors.UserError(
        f'--stage_devices names {_Count(len(devices), "device")} for {_Count(num_stages, "stage")}. Name one for each '
        f'stage (the same one twice if need be), set --num_stages={len(devices)}, or to a multiple of it: the stages '
        'then take the devices in turns.')
  devices *= num_stages // len(devices)
  for device in devices:
    if device.startswith(_LOCAL + 'GPU:') and int(device.rpartition(':')[2]) >= num_gpus:
      raise user_errors.UserError(
          f'--stage_devices names {ShortName(device)}, and TensorFlow found '
          f'{_Count(num_gpus, "GPU") if num_gpus else "no GPU"}.')
  return devices


def DeviceCount(devices):
  """Returns a session's device_count (ConfigProto) for a list of full device names.

  There are as many CPU devices of this process as are named. Where no GPU is named, none is touched: unplaced
  operations would go there.
  """
  local = [d[len(_LOCAL):].split(':') for d in devices if d.startswith(_LOCAL)]
  count = {'CPU': max([1] + [int(index) + 1 for kind, index in local if kind == 'CPU'])}
  if devices and not any(kind == 'GPU' for kind, _ in local):
    count['GPU'] = 0
  return count


def ShortName(device):
  """Returns a device's name without what all local devices share: CPU:0."""
  return device[len(_LOCAL):] if device.startswith(_LOCAL) else device


def _Full(device):
  match = re.fullmatch(r'(/job:\w+/replica:\d+/task:\d+)?/?(?:device:)?(cpu|gpu):(\d+)', device, re.IGNORECASE)
  if not match:
    raise user_errors.UserError(
        f'--stage_devices: {device!r} is not a device. Write cpu, gpu, or a comma list such as gpu:0,gpu:1.')
  job, kind, index = match.groups()
  return (f'{job}/device:' if job else _LOCAL) + f'{kind.upper()}:{int(index)}'


def _Count(n, noun):
  return f'{n} {noun}' + ('' if n == 1 else 's')
