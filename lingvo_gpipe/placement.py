"""Where things live: stage -> device, and everything a stage owns beside it.

Variables and optimizer slots follow the device scope they are made under, so a
stage's layers are created under `tf.device(stage device)`. The rest of this
file keeps TensorFlow from undoing that: loop-carried values are kept beside
their stage (`BesideInput`) and weights aren't fetched by way of another device
(`AtHome`).
"""

import lingvo.compat as tf


def StageDevices(devices, cluster, num_stages):
  """Returns the device of each stage.

  Args:
    devices: A list of TensorFlow device names, or None for the devices of the
      cluster's current model split. With fewer devices than stages, stage i is
      on device i modulo their number.
    cluster: A Lingvo cluster.
    num_stages: The number of stages.

  Returns:
    A list of num_stages full device names.

  Raises:
    ValueError: `devices` is an empty list.
  """
  if devices is None:
    return [cluster.WorkerDeviceInModelSplit(i) for i in range(num_stages)]
  if not devices:
    raise ValueError(
        'stage_devices is an empty list. Name at least one device, such as '
        "['/device:GPU:0', '/device:GPU:1'], or leave it None to use the "
        "cluster's devices.")
  return [devices[i % len(devices)] for i in range(num_stages)]


def HostOf(device):
  """Returns the CPU device that drives `device` (a CPU device drives itself).

  Seeds and indices are read on the host by the kernels that use them, so they
  are computed there.
  """
  spec = tf.DeviceSpec.from_string(device)
  if spec.device_type in (None, 'CPU'):
    return device
  return spec.replace(device_type='CPU', device_index=0).to_string()


def Counter(start, device):
  """An int32 scalar to count a stage's micro-batches from, on its device.

  (TensorFlow keeps int32 scalars of a GPU in host memory, where the kernels
  that take it as an index read it.)

  Args:
    start: An int, or an int32 scalar on any device.
    device: The stage's device name.

  Returns:
    int32 scalar.
  """
  if isinstance(start, int):
    with tf.device(device):
      return tf.constant(start)
  with tf.device(HostOf(device)):
    # On the way as int64: int32 doesn't cross from stage to stage.
    return tf.cast(tf.cast(start, tf.int64), tf.int32)


def BesideInput(op):
  """A device function: an op without a device goes where its first input is.

  `tf.while_loop` makes the ops that carry a value round the loop (Enter, Merge,
  Switch, NextIteration, Exit) without a device of their own. Left to the
  placer, or to a trainer's device function, they gather on the first device,
  and every stage's gradients travel there and back each micro-batch.

  Args:
    op: A tf.Operation that is being created.

  Returns:
    A device name, or '' where no input has a device.
  """
  if op.device:
    return op.device
  for x in op.inputs:
    if x.device:
      return x.device
  return ''


def AtHome(value, device):
  """Returns `value` as a tensor, read where it lives if that is `device`.

  Lingvo hands weights to FProp as copies spread over the replica's devices
  (`py_utils.CreateLocalTheta`). Where such a copy isn't on `device` but the
  variable is, the copy is skipped: otherwise each step would send the weights
  to some other device and back.

  Args:
    value: A tensor or variable.
    device: The stage's device name.

  Returns:
    A tensor of the same value, dtype and shape.
  """
  with tf.device(device):
    x = tf.convert_to_tensor(value)
  source = x
  while source.op.type == 'Identity':
    if _SameDevice(source.device, device):
      return source
    source = source.op.inputs[0]
  return source if _SameDevice(source.device, device) else x


def _SameDevice(a, b):
  """Whether two device names mean one device; '' means none in particular."""
  return bool(a) and tf.DeviceSpec.from_string(a) == tf.DeviceSpec.from_string(b)
