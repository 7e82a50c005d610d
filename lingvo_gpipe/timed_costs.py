"""Measured costs: how long each layer takes, forward and backward.

Layers run in a graph and session of their own, so the model's variables and
random numbers are as they were.

A layer that runs alone, again and again, finds its weights and inputs in the
processor's cache, and in a model it doesn't. So layers run in sequence too,
which says how long all take, while alone they say how it is to be shared out.
"""

import dataclasses
import os
import platform
import re

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import cost_model
from lingvo_gpipe import layer_graph
from lingvo_gpipe import layer_timing
from lingvo_gpipe import time_cache

# Layers run in sequence while their weights, gradients and activations together
# take no more bytes than these: many times a cache, little of a device.
_SEQUENCE_BYTES = 2**30


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
  timer = _Timer(device, _Config(device, session_config), cache)
  kinds, costs = [], []
  for first, specs, shared, cost in cost_model.InSequence(
      layers, *inputs, shared_weights=shared_weights):
    kinds.append(first)
    timer.Introduce(first, layer_timing.Given(layers[first], specs, shared))
    costs.append(cost)
  alone = [timer.Seconds((kind,)) for kind in kinds]
  timed = []
  for start, end in _Sequences(costs):
    together = timer.Seconds(tuple(kinds[start:end]))
    shares = _Share(together, alone[start:end])
    for cost, (forward, backward) in zip(costs[start:end], shares):
      timed.append(
          dataclasses.replace(
              cost, forward_seconds=forward, backward_seconds=backward,
              source='timed'))
  return timed


def _Sequences(costs):
  """(start, end) of the layers that run in sequence, in order."""
  starts, total = [], 0
  for i, cost in enumerate(costs):
    taken = 2 * cost.param_bytes + cost.kept_bytes
    total += taken
    if not starts or total > _SEQUENCE_BYTES:
      starts.append(i)
      total = taken
  return zip(starts, starts[1:] + [len(costs)])


def _Share(together, alone):
  """Shares (forward, backward) seconds out in proportion to those of each."""
  totals = [sum(seconds) for seconds in zip(*alone)]
  return [
      tuple(x * t / total if total else t / len(alone)
            for x, t, total in zip(seconds, together, totals))
      for seconds in alone
  ]


class _Timer:
  """Measures sequences of layers, each once."""

  def __init__(self, device, config, cache):
    self._device = device
    self._config = config
    self._times = time_cache.TimeCache(cache)
    self._layers = {}
    self._found = {}

  def Introduce(self, kind, given):
    """The layers of a kind, a number, are as `given`, a layer_timing.Given."""
    self._layers.setdefault(kind, given)

  def Seconds(self, kinds):
    """(seconds forward, seconds backward) of layers of these kinds, a tuple."""
    if kinds not in self._found:
      layers = [self._layers[kind] for kind in kinds]
      key = _Key(layers, self._device, self._config)
      self._found[kinds] = self._times.Get(key)
      if self._found[kinds] is None:
        tf.logging.info('Measuring layers %r to %r.', layers[0].params.name,
                        layers[-1].params.name)
        self._found[kinds] = layer_graph.Alone(
            lambda: layer_timing.Seconds(layers, self._device, self._config))
        self._times.Add(key, self._found[kinds])
    return self._found[kinds]


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


def _Key(layers, device, config):
  """What the times depend on, a dict of text."""
  return {
      'class': ', '.join(_Class(x.params) for x in layers),
      'params': '\n'.join(_Text(x.params) for x in layers),
      'inputs': repr(layers[0].inputs),
      'shared_weights': '; '.join(repr(sorted(x.shared.items())) for x in layers),
      'device': _Kind(device),
      'threads': f'{config.intra_op_parallelism_threads} in an operator, '
                 f'{config.inter_op_parallelism_threads} operators',
      'tensorflow': tf.version.VERSION,
  }


def _Class(params):
  return f'{params.cls.__module__}.{params.cls.__qualname__}'


def _Text(params):
  """Params without their name, and without addresses, which differ by process."""
  return re.sub(r' at 0x[0-9a-f]+', '', params.Copy().Set(name='').ToText())


def _Kind(device):
  """What hardware a device of this process is."""
  gpus = tf.config.list_physical_devices('GPU')
  spec = tf.DeviceSpec.from_string(device)
  if spec.device_type == 'CPU' or not gpus:
    return f'CPU, {platform.machine()}, {os.cpu_count()} cores'
  details = tf.config.experimental.get_device_details(
      gpus[min(spec.device_index or 0, len(gpus) - 1)])
  return f'{spec.device_type or "GPU"}, {details.get("device_name")}'
