"""Measured costs: how long each layer takes, forward and backward.

A layer runs alone, in a graph and session of its own, so the model's variables
and random numbers are as they were.
"""

import dataclasses
import os
import platform
import re
import statistics
import time

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import cost_model
from lingvo_gpipe import layer_graph
from lingvo_gpipe import time_cache
from lingvo_gpipe.stage import Differentiable

_WARM_UP = 2
_MIN_RUNS = 5
_MAX_RUNS = 50
# No more runs after so many seconds, once there are _MIN_RUNS.
_ENOUGH_SECONDS = 0.5


def LayerCosts(layers,
               *inputs,
               shared_weights=None,
               device='',
               session_config=None,
               cache=None):
  """cost_model.LayerCosts with measured times.

  Each layer, of equal ones the first, runs on inputs of zeros: ids are then
  valid, and nothing is padding. Medians of several runs count.

  Args:
    layers: A list of params.
    *inputs: What the first layer's FProp takes for one micro-batch, as
      cost_model.Spec takes it.
    shared_weights: As in PipeliningLayer.
    device: The TensorFlow device name to run on; one of another process stands
      for this one's first of its type. Empty: where TensorFlow places it.
    session_config: A tf.ConfigProto with the numbers of threads. None: Lingvo's.
    cache: Path of a JSON file with the times of earlier runs; new ones are
      added. None: everything is measured.

  Returns:
    A list of cost_model.LayerCost whose source is `timed`.

  Raises:
    ValueError: As cost_model.Trace; or the device isn't there, or the cache
      isn't one.
  """
  device = _Local(device)
  config = _Config(device, session_config)
  times = time_cache.TimeCache(cache)
  found = {}
  costs = []
  for first, specs, shared, cost in cost_model.InSequence(
      layers, *inputs, shared_weights=shared_weights):
    if first not in found:
      params = layers[first]
      key = _Key(params, specs, shared, device, config)
      found[first] = times.Get(key)
      if found[first] is None:
        tf.logging.info('Measuring layer %r.', params.name)
        found[first] = layer_graph.Alone(
            lambda: _Measure(params, specs, shared, device, config))  # pylint: disable=cell-var-from-loop
        times.Add(key, found[first])
    forward, backward = found[first]
    costs.append(
        dataclasses.replace(
            cost, forward_seconds=forward, backward_seconds=backward,
            source='timed'))
  return costs


def _Local(device):
  """The device of this process that stands for a device."""
  spec = tf.DeviceSpec.from_string(device)
  if spec.device_type is None:
    return ''
  local = spec.job in (None, 'localhost', 'local')
  return f'/device:{spec.device_type}:{spec.device_index or 0 if local else 0}'


def _Config(device, session_config):
  """The session's config: with the device, and with no GPU beside a CPU."""
  config = tf.config_pb2.ConfigProto()
  config.CopyFrom(session_config or py_utils.SessionConfig())
  # An operator without a kernel there (int32 on a GPU) runs on the host.
  config.allow_soft_placement = True
  spec = tf.DeviceSpec.from_string(device)
  if spec.device_type == 'CPU':
    config.device_count.update({'CPU': spec.device_index + 1, 'GPU': 0})
  return config


def _Key(params, specs, shared, device, config):
  """What the times depend on, a dict of text."""
  text = params.Copy().Set(name='').ToText()
  return {
      'class': f'{params.cls.__module__}.{params.cls.__qualname__}',
      # Without addresses, which differ from process to process.
      'params': re.sub(r' at 0x[0-9a-f]+', '', text),
      'inputs': repr(specs),
      'shared_weights': repr(sorted(shared.items())),
      'device': _Kind(device),
      'threads': f'{config.intra_op_parallelism_threads} in an operator, '
                 f'{config.inter_op_parallelism_threads} operators',
      'tensorflow': tf.version.VERSION,
  }


def _Kind(device):
  """What hardware a device of this process is."""
  gpus = tf.config.list_physical_devices('GPU')
  spec = tf.DeviceSpec.from_string(device)
  if spec.device_type == 'CPU' or not gpus:
    return f'CPU, {platform.machine()}, {os.cpu_count()} cores'
  details = tf.config.experimental.get_device_details(
      gpus[min(spec.device_index or 0, len(gpus) - 1)])
  return f'{spec.device_type or "GPU"}, {details.get("device_name")}'


def _Measure(params, specs, shared, device, config):
  """(seconds forward, seconds backward) of a layer, in the current graph."""
  with tf.device(device):
    fetches = _Build(params, specs, shared)
  init = tf.global_variables_initializer()
  with tf.Session(config=config) as session:
    _CheckDevice(session, device)
    session.run(init)
    overhead, forward, both = _Medians(
        [session.make_callable(x) for x in fetches])
  return max(forward - overhead, 0.), max(both - forward, 0.)


def _Build(params, specs, shared):
  """Tensors to fetch: for nothing, forward, forward and backward."""
  layer = layer_graph.Create(params)
  theta = layer.theta.Transform(tf.convert_to_tensor)
  for path, spec in shared.items():
    theta.Set(path, _Variable(spec))
  inputs = tuple(py_utils.Transform(_Variable, x) for x in specs)
  outputs, accumulated = layer_graph.Forward(
      layer, theta, inputs, _Variable(tf.TensorSpec([], tf.int64)))
  outputs = layer_graph.Tensors(outputs)
  ys = [y for y in outputs if Differentiable(y)]
  xs = [x for x in layer_graph.Tensors((inputs, theta)) if Differentiable(x)]
  gradients, _ = layer_graph.Gradients(ys, [_Variable(y) for y in ys], xs)
  forward = outputs + accumulated
  nothing = [_Variable(tf.TensorSpec([1], tf.float32))]
  return [
      _Glance(tensors) for tensors in
      (nothing, forward, forward + layer_graph.Tensors(gradients))
  ]


def _Glance(tensors):
  """A scalar that can't be had without the tensors, and is soon copied.

  (TensorFlow drops operators whose results only control edges leave, as those
  of tf.group.)
  """
  return tf.add_n(
      [tf.cast(tf.reshape(x, [-1])[0], tf.float32) for x in tensors])


def _Variable(spec):
  """Zeros that TensorFlow can't know while it simplifies the graph."""
  if spec is None:
    return None
  variable = tf.Variable(
      tf.zeros(spec.shape, spec.dtype), trainable=False, use_resource=True)
  return variable.read_value()


def _CheckDevice(session, device):
  found = [d.name for d in session.list_devices()]
  if not any(name.endswith(device) for name in found):
    raise ValueError(
        f'The layers cannot be timed on {device}: TensorFlow found '
        f'{", ".join(found)}.')


def _Medians(runs):
  """The median seconds of each of the functions, which run in turn."""
  for _ in range(_WARM_UP):
    for run in runs:
      run()
  seconds = [[] for _ in runs]
  start = time.perf_counter()
  while len(seconds[0]) < _MIN_RUNS or (
      len(seconds[0]) < _MAX_RUNS and
      time.perf_counter() - start < _ENOUGH_SECONDS):
    for run, taken in zip(runs, seconds):
      before = time.perf_counter()
      run()
      taken.append(time.perf_counter() - before)
  return [statistics.median(taken) for taken in seconds]
