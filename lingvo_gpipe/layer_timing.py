"""How long layers take on a device: built in the current graph, and run.

timed_costs.py says which layers, and what to make of it.
"""

import statistics
import time
from typing import Any, NamedTuple

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import layer_graph
from lingvo_gpipe.feature_extraction import ToTuple
from lingvo_gpipe.stage import Differentiable

_WARM_UP = 2
_MIN_RUNS = 5
_MAX_RUNS = 50
# No more runs after so many seconds, once there are _MIN_RUNS.
_ENOUGH_SECONDS = 0.5


class Given(NamedTuple):
  """A layer and what it is given.

  Attributes:
    params: The layer's params.
    inputs: A tuple of structures of tf.TensorSpec and None, FProp's arguments.
    shared: {path in theta: tf.TensorSpec} of weights that are another layer's.
  """
  params: Any
  inputs: Any
  shared: Any


def Seconds(layers, device, config):
  """Runs layers in sequence, forward and backward, on inputs of zeros.

  Args:
    layers: A list of Given, each of which takes what the one before gives.
    device: A TensorFlow device name of this process.
    config: The session's tf.ConfigProto.

  Returns:
    (seconds forward, seconds backward), medians of several runs.

  Raises:
    ValueError: The device isn't there.
  """
  with tf.device(device):
    fetches = _Build(layers)
  init = tf.global_variables_initializer()
  with tf.Session(config=config) as session:
    _CheckDevice(session, device)
    session.run(init)
    overhead, forward, both = _Medians(
        [session.make_callable(x) for x in fetches])
  return max(forward - overhead, 0.), max(both - forward, 0.)


def _Build(layers):
  """Tensors to fetch: for nothing, forward, forward and backward."""
  inputs = tuple(py_utils.Transform(_Variable, x) for x in layers[0].inputs)
  needed = layer_graph.Tensors(inputs)  # Whose gradients are taken.
  outputs, accumulated = inputs, []
  for i, given in enumerate(layers):
    layer = layer_graph.Create(given.params.Copy().Set(name=f'layer_{i}'))
    theta = layer.theta.Transform(tf.convert_to_tensor)
    for path, spec in given.shared.items():
      theta.Set(path, _Variable(spec))
    needed += theta.Flatten()
    outputs, more = layer_graph.Forward(
        layer, theta, ToTuple(outputs), _Variable(tf.TensorSpec([], tf.int64)))
    accumulated += more
  outputs = layer_graph.Tensors(outputs)
  ys = [y for y in outputs if Differentiable(y)]
  xs = [x for x in needed if Differentiable(x)]
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
