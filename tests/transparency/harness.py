"""Runs a stack of layers in a pipeline, and in sequence on one device.

Both give a Result: outputs, loss, gradients, and the variables after some steps
of training. The sequence uses none of the pipeline's code. Its graph runs one
micro-batch; numpy splits the batch, joins the outputs and adds the gradients up.
"""

import collections
import contextlib
import zlib

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np

import lingvo_gpipe

_V1 = tf.compat.v1

# Lingvo's step seed around the layers.
_SEED = 1234
_STEPS = 3
_LEARNING_RATE = 0.01
# A bias that batch normalisation undoes has a gradient of 0, up to rounding.
# Adam's default epsilon, 1e-8, would make steps of that rounding.
_ADAM_EPSILON = 1e-2

# What there is to compare. `outputs` and `d_inputs` have the structure of the
# outputs and inputs; `d_variables`, `sgd` and `adam` are dicts by variable name.
# A gradient that there isn't is None.
Result = collections.namedtuple(
    'Result', ['outputs', 'loss', 'd_inputs', 'd_variables', 'sgd', 'adam'])
OPTIMIZERS = ('sgd', 'adam')
# The fields without training.
_Pass = collections.namedtuple('_Pass', Result._fields[:4])


class Stack:
  """Layers in sequence, and inputs for them.

  Attributes:
    layers: () -> a list of params, in order. Each has a name of its own.
    inputs: RandomState -> a list of what the first layer takes: numpy arrays
      with the batch at batch_dim, None, or one NestedMap of them.
    batch_dim: The batch dimension.
    by_micro_batch: Whether a layer gives other results for a micro-batch than
      for those examples in the whole batch: batch normalisation, dropout.
    nested: Whether the layers take and give one NestedMap.
    cells: () -> a list of params of stages made by hand, whose number doesn't
      depend on K. The devices are taken round and round.
    sequence: (run, *inputs) -> outputs, where run(name, *args) runs a layer.
      None: each layer takes what the one before gives.
    scope: () -> a context to create the layers in.
    rtol: The relative tolerance.
    atol: The absolute tolerance, in units of a tensor's largest value: an
      element that is a sum of terms which cancel is no better known than them.
    untrained: Whether variables that no gradient trains are compared too:
      moving averages.
  """

  def __init__(self, layers, inputs, batch_dim=0, by_micro_batch=False,
               nested=False, cells=None, sequence=None,
               scope=contextlib.nullcontext, rtol=1e-5, atol=1e-6,
               untrained=True):
    self.layers = layers
    self.inputs = inputs
    self.batch_dim = batch_dim
    self.by_micro_batch = by_micro_batch
    self.nested = nested
    self.cells = cells
    self.sequence = sequence or self._InSequence
    self.scope = scope
    self.rtol = rtol
    self.atol = atol
    self.untrained = untrained

  def _InSequence(self, run, *args):
    for p in self.layers():
      args = run(p.name, *args)
      args = args if isinstance(args, tuple) else (args,)
    return args if len(args) > 1 else args[0]

  def Values(self):
    """The inputs, always the same."""
    return self.inputs(np.random.RandomState(5))

  def Pipeline(self, k, m, recompute, devices, schedule='gpipe'):
    """The params of the pipeline."""
    p = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='pipeline', num_micro_batches=m, batch_dim=self.batch_dim,
        nested_map_fprop=self.nested, recompute=recompute, schedule=schedule)
    if self.cells:
      return p.Set(cell_tpl=self.cells(), stage_devices=devices)
    return p.Set(layers=self.layers(), num_stages=k)


def Pipelined(devices, stack, k, m, recompute, optimizers=OPTIMIZERS,
              rewrite=False, schedule='gpipe'):
  """The Result of the pipeline of K stages on as many devices.

  Args:
    devices: A Devices.
    stack: A Stack.
    k: The number of stages.
    m: The number of micro-batches.
    recompute: One of stacked_recurrent.RECOMPUTE_MODES.
    optimizers: Which to train with; there is None in place of the others'
      results.
    rewrite: Whether TensorFlow may rewrite the graph before it runs it, which
      takes as long as all the rest.
    schedule: Of the pipeline. With `1f1b` there are no outputs.

  Returns:
    A Result.
  """
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    step = py_utils.GetOrCreateGlobalStepVar()
    # Not constants, which TensorFlow may fold.
    inputs = _Map(
        lambda x: tf.placeholder_with_default(tf.constant(x), x.shape),
        stack.Values())
    with stack.scope():
      net = stack.Pipeline(
          k, m, recompute, devices.Names(k), schedule).Instantiate()
    py_utils.ResetStepSeed(_SEED)
    if schedule == 'gpipe':
      outputs = net.FPropDefaultTheta(*inputs)
      loss = _Loss(outputs)
    else:
      outputs, loss = None, _LossInside(net, inputs)
    out, gradients = _Gradients(inputs, outputs, loss)
    with tf.control_dependencies([d for d, _ in gradients]):
      update = net.PostTrainingStepUpdate()
    trains = {
        name: tf.group(
            optimizer.apply_gradients(gradients, global_step=step), update)
        for name, optimizer in _Optimizers(optimizers)
    }

  def Step(session, name):
    return _RunStructure(session, out, trains.get(name))

  return _Train(devices, graph, k, stack, Step, optimizers, rewrite)


def Sequential(devices, stack, m):
  """The Result of the layers one after another on one device.

  Args:
    devices: A Devices.
    stack: A Stack.
    m: How many micro-batches to run the layers on, one after another.

  Returns:
    A Result.
  """
  graph = tf.Graph()
  axis = stack.batch_dim
  with graph.as_default(), devices.Cluster(1):
    step = py_utils.GetOrCreateGlobalStepVar()
    t = tf.placeholder(tf.int64, [])
    parts = _Split(stack.Values(), m, axis)
    inputs = _Map(lambda x: tf.placeholder(x.dtype, x.shape), parts[0])
    with stack.scope():
      layers = {p.name: p.Instantiate() for p in stack.layers()}

    def Run(name, *args):
      py_utils.ResetStepSeed(
          _SEED + t * 2**33 + py_utils.GenerateSeedFromName(name))
      return layers[name].FPropDefaultTheta(*args)

    outputs = stack.sequence(Run, *inputs)
    out, gradients = _Gradients(inputs, outputs, _Loss(outputs, m, t, axis))
    statistics = [l.GetAccumulatorValues() for l in layers.values()]
    sums = [tf.placeholder(x.dtype, x.shape)
            for x in [d for d, _ in gradients] + tf.nest.flatten(statistics)]
    gradients = [(s, v) for s, (_, v) in zip(sums, gradients)]
    for l, s in zip(layers.values(), tf.nest.pack_sequence_as(
        statistics, sums[len(gradients):])):
      l.SetAccumulatorValues(s)
    updates = [l.PostTrainingStepUpdate() for l in layers.values()]
    trains = {
        name: tf.group(optimizer.apply_gradients(gradients, global_step=step),
                       *updates) for name, optimizer in _Optimizers(OPTIMIZERS)
    }

  def Step(session, name):
    found = [_RunStructure(
        session, (out, statistics),
        feed=dict(zip(_Present((t, inputs)), _Present((i, part)))))
             for i, part in enumerate(parts)]
    passes = [p for p, _ in found]
    d_variables = _Map(lambda *d: sum(d), *[p.d_variables for p in passes])
    added = _Map(lambda *x: sum(x), *[s for _, s in found])
    session.run(trains[name],
                dict(zip(sums, _Present((list(d_variables.values()), added)))))
    return _Pass(
        _Join([p.outputs for p in passes], axis),
        np.sum([p.loss for p in passes]),
        _Join([p.d_inputs for p in passes], axis), d_variables)

  return _Train(devices, graph, 1, stack, Step, OPTIMIZERS, False)


def _Map(fn, *structures):
  """fn of each value that isn't None, in tuples, lists, dicts and NestedMaps."""
  return tf.nest.map_structure(
      lambda x, *rest: None if x is None else fn(x, *rest), *structures)


def _Present(structure):
  """The list of its values that aren't None."""
  return [x for x in tf.nest.flatten(structure) if x is not None]


def _Split(inputs, m, axis):
  """A list of arrays, or of NestedMaps of them -> m such lists."""
  split = [[None] * m if x is None else np.split(x, m, axis)
           for x in tf.nest.flatten(inputs)]
  return [tf.nest.pack_sequence_as(inputs, part) for part in zip(*split)]


def _Join(parts, axis):
  """The inverse of _Split, for any structure."""
  return _Map(lambda *xs: np.concatenate(xs, axis), *parts)


def _Loss(outputs, m=1, t=0, axis=0):
  """Half the squared distance of all floating-point outputs from a target.

  Args:
    outputs: A structure of tensors.
    m: They are one of so many micro-batches.
    t: int64 scalar, which one.
    axis: The batch dimension.

  Returns:
    float32 scalar.
  """
  total = 0.
  for x in _Present(outputs):
    if not x.dtype.is_floating:
      continue
    shape = x.shape.as_list()
    size = shape[axis]
    shape[axis] *= m
    # Depends on the place, so that a swap of examples or outputs shows.
    target = np.sin(np.arange(np.prod(shape), dtype=np.float32)).reshape(shape)
    target = tf.gather(target, tf.cast(t, tf.int32) * size + tf.range(size),
                       axis=axis)
    total += tf.reduce_sum(tf.square(tf.cast(x, tf.float32) - target))
  return total / 16.


def _LossInside(net, inputs):
  """_Loss of what the pipeline gives for the inputs, by FPropLoss."""
  axis = net.params.batch_dim
  size = _Present(inputs)[0].shape.as_list()[axis]

  def Metrics(theta, outputs, targets):
    del theta
    examples = tf.reshape(targets.example, [-1])
    num = examples.shape.as_list()[0]
    # Half of it as an auxiliary loss that counts other things.
    half = _Loss(outputs, size // num, examples[0] // num, axis) / (2. * num)
    return {'loss': (half, num), 'other': (half, 3. * num)}

  shape = [1] * axis + [size]
  targets = py_utils.NestedMap(
      example=tf.reshape(tf.range(size, dtype=tf.int64), shape))
  return net.FPropLoss(
      net.theta, Metrics, py_utils.NestedMap(), targets, *inputs,
      terms={'loss': size, 'other': size})['loss'][0]


def _Gradients(inputs, outputs, loss):
  """Returns a _Pass of tensors, and the list of (gradient, variable)."""
  variables = _V1.trainable_variables()
  floats = [x for x in _Present(inputs) if x.dtype.is_floating]
  # Dense, since optimizers treat the sparse gradient of an embedding otherwise.
  found = [None if d is None else tf.convert_to_tensor(d)
           for d in _V1.gradients(loss, variables + floats)]
  d_variables = list(zip(found, variables))
  rest = iter(found[len(variables):])
  d_inputs = _Map(lambda x: next(rest) if x.dtype.is_floating else None, inputs)
  out = _Pass(outputs, loss, d_inputs, {v.name: d for d, v in d_variables})
  return out, [(d, v) for d, v in d_variables if d is not None]


def _Optimizers(names):
  """Pairs (name, optimizer)."""
  made = dict(
      sgd=_V1.train.MomentumOptimizer(_LEARNING_RATE, 0.9, name='sgd'),
      adam=_V1.train.AdamOptimizer(
          _LEARNING_RATE, epsilon=_ADAM_EPSILON, name='adam'))
  return [(name, made[name]) for name in names]


def _IsOptimizers(variable):
  return any(part.startswith(('sgd', 'adam', 'beta1_power', 'beta2_power'))
             for part in variable.op.name.split('/'))


def _RunStructure(session, structure, op=None, feed=None):
  """Runs op and fetches a structure in which there may be None."""
  found, _ = session.run([_Present(structure), op or []], feed)
  found = iter(found)
  return _Map(lambda _: next(found), structure)


def _Train(devices, graph, k, stack, step, optimizers, rewrite):
  """Runs _STEPS steps with each optimizer, from the same values; or one without.

  Args:
    devices: A Devices.
    graph: The graph.
    k: The number of devices.
    stack: The Stack.
    step: (session, optimizer's name or None) -> a _Pass of numpy arrays.
    optimizers: Names of optimizers.
    rewrite: Whether TensorFlow may rewrite the graph.

  Returns:
    A Result.
  """
  with graph.as_default():
    init = _V1.global_variables_initializer()
    variables = _V1.trainable_variables()
    values = {v.initializer.inputs[1]: InitialValue(v.op.name, v.shape)
              for v in variables}
    if stack.untrained:
      variables = [v for v in _V1.global_variables() if not _IsOptimizers(v)]
  first = None
  trained = dict.fromkeys(OPTIMIZERS)
  with devices.Session(graph, k, rewrite) as session:
    for name in optimizers:
      session.run(init, values)
      for _ in range(_STEPS):
        found = step(session, name)
        first = first or found
      trained[name] = session.run({v.name: v for v in variables})
    if not optimizers:
      session.run(init, values)
      first = step(session, None)
  return Result(*first, **trained)


def InitialValue(name, shape):
  """Random and hardly ever 0; for a variable of that name always the same."""
  rng = np.random.RandomState(zlib.crc32(name.encode()))
  return .3 * rng.randn(*shape) + .1


def AssertSame(ours, expected, stack):
  """Asserts that two Results agree, as far as ours was trained."""
  for field in Result._fields:
    if field in ('outputs',) + OPTIMIZERS and getattr(ours, field) is None:
      continue
    _AssertSame(field, getattr(ours, field), getattr(expected, field), stack)


def _AssertSame(what, ours, expected, stack):
  if isinstance(expected, dict):
    assert sorted(ours) == sorted(expected), what
    for key in expected:
      _AssertSame(f'{what}.{key}', ours[key], expected[key], stack)
  elif isinstance(expected, (tuple, list)):
    assert type(ours) is type(expected) and len(ours) == len(expected), what
    for i, pair in enumerate(zip(ours, expected)):
      _AssertSame(f'{what}[{i}]', *pair, stack)
  elif expected is None:
    assert ours is None, f'{what} is not None'
  else:
    assert ours is not None, f'{what} is None'
    _AssertArrays(what, np.asarray(ours), np.asarray(expected), stack)


def _AssertArrays(what, ours, expected, stack):
  assert ours.dtype == expected.dtype, (what, ours.dtype, expected.dtype)
  assert ours.shape == expected.shape, (what, ours.shape, expected.shape)
  if not _V1.as_dtype(expected.dtype).is_floating:
    np.testing.assert_array_equal(ours, expected, err_msg=what)
    return
  ours, expected = ours.astype(np.float64), expected.astype(np.float64)
  assert np.isfinite(expected).all(), what
  np.testing.assert_allclose(
      ours, expected, rtol=stack.rtol, err_msg=what,
      atol=stack.atol * max(1., np.abs(expected).max(initial=0.)))
