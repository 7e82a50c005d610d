"""StackedRecurrent: recurrent layers on many devices, as one while loop.

An iteration of the loop takes one micro-batch (one time step) through every
stage, each on its device:

    while t < T:
      x = inputs[t]
      for k in range(K):
        with device(k), after(stage k's micro-batch t - 1):
          state[k], extras = cell_fn[k](theta[k], state[k], x)
          x = cell_out[k](state[k])
      outputs[t] = state[K - 1]

TensorFlow's executor overlaps iterations: stage 0 begins micro-batch t + 1
while stage 1 has t, which is the pipeline. The transfers between devices, and
hosts, are the ones that TensorFlow itself puts into a graph. A token that each
stage carries round the loop keeps its micro-batches in order and one at a time,
so that memory doesn't grow to that of the whole batch.

The gradient is recompute.py's: a second such loop in reverse order.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import gradient_link
from lingvo_gpipe import lingvo_compat
from lingvo_gpipe import micro_batch
from lingvo_gpipe import placement
from lingvo_gpipe import recompute as recompute_lib
from lingvo_gpipe import slices
from lingvo_gpipe.stage import CurrentStepSeed
from lingvo_gpipe.stage import Differentiable
from lingvo_gpipe.stage import Stage

# `always`: the gradient runs each cell again from its boundary activation.
# `never`: the forward loop keeps all intermediate values, as TensorFlow does.
RECOMPUTE_MODES = ('always', 'never')


@lingvo_compat.GraphLoops()
def StackedRecurrent(devices,
                     cell_fns,
                     cell_grads,
                     cell_outs,
                     cell_out_grads,
                     thetas,
                     init_states,
                     inputs,
                     accumulator_layers=None,
                     unused_acc_state=False,
                     recompute='always',
                     first_micro_batch_id=None,
                     zeros_for_unused=True,
                     names=None):
  """Computes stacked recurrent layers, each on its device.

  Signature and meaning are those of lingvo.core.recurrent.StackedRecurrent:

    for each layer:
      with tf.device(device):
        states, final_state = Recurrent(theta, state0, inputs, cell_fn)
        inputs = cell_out(states)
    return inputs, final_states

  computed at once for all layers, time step by time step.

  Args:
    devices: A list of K TensorFlow device names.
    cell_fns: A cell function, or a list of K: (theta, state0, inputs) ->
      (state1, extras), all NestedMaps of tensors.
    cell_grads: Gradient functions in place of TensorFlow's own, or None:
      (theta, state0, inputs, extras, dstate1) -> (dtheta, dstate0, dinputs,
      dcaptures). One, or a list of K.
    cell_outs: state1 -> the next layer's inputs. One, or a list of K.
    cell_out_grads: The gradient of the next layer's inputs -> that of state1.
      One, or a list of K.
    thetas: A list of K NestedMaps, the weights.
    init_states: A list of K NestedMaps, the states before the first step. With
      an empty one the layer keeps no state: state1 is merely its output.
    inputs: NestedMap of tensors [time, ...]. If it has `padding`, steps at
      either end that are padding throughout are left out; their outputs are 0.
    accumulator_layers: Layers whose accumulators travel round the loop, or
      None. A list of K.
    unused_acc_state: Whether no cell reads its state0. States are then neither
      kept for the gradient nor given to the cells.
    recompute: One of RECOMPUTE_MODES. With a cell_grad it is `always`.
    first_micro_batch_id: int64 scalar. If given, random ops of time step t see
      first_micro_batch_id + t as the global step.
    zeros_for_unused: Whether the gradient of a weight, state or input that does
      not affect the outputs is zeros, as in Lingvo, or None, as in TensorFlow.
    names: What errors call the layers. A list of K, or None.

  Returns:
    (outputs, final_states): cell_out of the last layer's states [time, ...],
    and a list of K NestedMaps.

  Raises:
    TypeError: an argument isn't of the type above.
    ValueError: lists of different lengths, an unknown recompute mode, or a
      cell that can't be pipelined (Stage.Trace).
  """
  stages = _Stages(devices, cell_fns, cell_grads, cell_outs, cell_out_grads,
                   thetas, init_states, accumulator_layers, names)
  if not isinstance(inputs, py_utils.NestedMap) or not inputs.Flatten():
    raise TypeError(
        'inputs must be a NestedMap with at least one tensor, but is '
        f'{type(inputs).__name__} {inputs!r}.')
  if recompute not in RECOMPUTE_MODES:
    raise ValueError(
        f'recompute is {recompute!r}; it must be one of '
        f'{", ".join(RECOMPUTE_MODES)}.')
  if any(s.cell_grad is not None for s in stages):
    recompute = 'always'
  spec = inputs.Transform(lambda x: tf.TensorSpec(x.shape[1:], x.dtype))
  with tf.name_scope('stacked_recurrent'), _KeepCollections():
    for stage in stages:
      stage.Trace(spec)
      spec = stage.out_spec
    seed = CurrentStepSeed()
    loop = _ForwardLoop(stages, inputs, seed, first_micro_batch_id,
                        unused_acc_state, recompute)
    states, finals = _Link(loop, *loop.Run(), recompute, zeros_for_unused)
    py_utils.ResetStepSeed(
        seed + py_utils.GenerateSeedFromName('after_stacked_recurrent'))
    with tf.device(devices[-1]):
      return stages[-1].cell_out(states), finals


def _Stages(devices, cell_fns, cell_grads, cell_outs, cell_out_grads, thetas,
            init_states, accumulator_layers, names):
  """The arguments of StackedRecurrent as Stages."""
  num = len(devices)
  if not num:
    raise ValueError('devices is empty; there must be one for each layer.')
  names = names or [f'layer {i}' for i in range(num)]

  def Each(arg, values):
    if not isinstance(values, (list, tuple)):
      return [values] * num
    if len(values) != num:
      raise ValueError(
          f'{arg} has {len(values)} entries for {num} devices; there must be '
          'one for each.')
    return values

  def EachMap(arg, values):
    for i, value in enumerate(Each(arg, values)):
      if not isinstance(value, py_utils.NestedMap):
        raise TypeError(
            f'{arg}[{i}] must be a NestedMap, but is {type(value).__name__}.')
    return values

  rows = zip(
      names, devices, Each('cell_fns', cell_fns), EachMap('thetas', thetas),
      EachMap('init_states', init_states), Each('cell_grads', cell_grads),
      Each('cell_outs', cell_outs), Each('cell_out_grads', cell_out_grads),
      Each('accumulator_layers', accumulator_layers))
  stages = []
  for (name, device, cell_fn, theta, state0, cell_grad, cell_out, cell_out_grad,
       accumulators) in rows:
    with tf.device(device):
      # Tensors of the stage's own: where two stages share a weight, each gives
      # its part of the gradient.
      theta, state0 = [
          m.Transform(lambda x, d=device: tf.identity(placement.AtHome(x, d)))
          for m in (theta, state0)
      ]
    stages.append(
        Stage(name, device, cell_fn, theta, state0, cell_grad, cell_out,
              cell_out_grad, accumulators))
  return stages


class _KeepCollections:
  """What cells add to the graph's collections inside is dropped.

  Summaries, update ops and losses made in a loop's body can't be fetched from
  outside of it.
  """

  def __enter__(self):
    graph = tf.get_default_graph()
    self._before = {
        key: len(graph.get_collection_ref(key))
        for key in graph.get_all_collection_keys()
    }

  def __exit__(self, *unused):
    graph = tf.get_default_graph()
    for key in graph.get_all_collection_keys():
      items = graph.get_collection_ref(key)
      start = self._before.get(key, 0)
      items[start:] = [
          x for x in items[start:]
          if not isinstance(x, (tf.Tensor, tf.Operation))
      ]


class _ForwardLoop:
  """The forward loop and what it leaves behind."""

  def __init__(self, stages, inputs, seed, first_id, unused_state, recompute):
    self.stages = stages
    self._recompute = recompute == 'always'
    self._unused_state = unused_state
    padding = inputs.get('padding')
    with tf.device(stages[0].device):
      self.length = py_utils.GetShape(inputs.Flatten()[0])[0]
      self.begin, self.limit = 0, self.length
      if padding is not None:
        self.begin, self.limit = _Unpadded(padding)
      self.inputs = inputs.Transform(tf.identity)
      self._inputs = slices.Slices.Of(self.inputs, self.length)
    self._numbers = [
        micro_batch.RandomNumbers(s, seed, first_id) for s in stages
    ]
    self._written = [None] * len(stages)  # The Slices before the loop.
    self.kept = []  # Filled by Run; a recompute_lib.Kept for each stage.

  @property
  def parallel_iterations(self):
    """Iterations under way at once; more than micro-batches is no use."""
    return self.length if isinstance(self.length, int) else 32

  def Run(self):
    """Builds the loop.

    Returns:
      (NestedMap of the last stage's states [time, ...], the same without a data
      edge from the loop, list of final states).
    """
    stages = self.stages
    carries = [self._Start(k) for k in range(len(stages))]
    with tf.device(placement.HostOf(stages[0].device)):
      i = tf.convert_to_tensor(self.begin, tf.int32)
    with tf.device(None), tf.device(placement.BesideInput):
      _, end = tf.while_loop(
          lambda i, _: i < self.limit, self._Body,
          [i, carries],
          parallel_iterations=self.parallel_iterations,
          back_prop=not self._recompute, name='forward')
    return self._Finish(end)

  def _Start(self, k):
    """What stage k carries round the loop, at its start."""
    stage = self.stages[k]
    written = py_utils.NestedMap()
    with tf.device(stage.device):
      if k == len(self.stages) - 1:
        written.outputs = slices.Slices(stage.state1_spec, self.length)
      if self._recompute:
        if k > 0:
          written.inputs = slices.Slices(stage.inputs_spec, self.length)
        if self._GivesState(stage):
          written.states = slices.Slices(
              stage.state0.Transform(lambda x: tf.TensorSpec(x.shape, x.dtype)),
              self.length)
        if stage.cell_grad is not None:
          written.extras = slices.Slices(stage.extras_spec, self.length)
      accumulators = []
      if stage.accumulators is not None:
        values = stage.accumulators.GetAccumulatorValues()
        accumulators = [tf.identity(x) for x in values.Flatten()]
      carry = py_utils.NestedMap(
          token=tf.constant(0),
          state=stage.state0.Flatten(),
          accumulators=accumulators,
          written=[w.arrays for _, w in sorted(written.items())])
    self._written[k] = written
    with tf.device(placement.HostOf(stage.device)):
      carry.index = tf.cast(tf.cast(self.begin, tf.int64), tf.int32)
    return carry

  def _GivesState(self, stage):
    return stage.carries_state and not self._unused_state

  def _Body(self, i, carries):
    after = []
    inputs = None
    for k, carry in enumerate(carries):
      stage = self.stages[k]
      with tf.device(stage.device):
        carry, inputs = self._Step(k, carry, inputs)
      after.append(carry)
    return i + 1, after

  def _Step(self, k, carry, inputs):
    """Runs stage k on one micro-batch; returns (carry, next stage's inputs)."""
    stage = self.stages[k]
    t = carry.index
    seed, micro_batch_id = self._numbers[k].At(t)
    # Ops that wait for nothing else (reads, casts of weights, random numbers)
    # wait for the micro-batch before.
    with tf.control_dependencies([carry.token]):
      if k == 0:
        inputs = self._inputs.Read(t)
      else:
        inputs = py_utils.Transform(
            lambda x, s: slices.FromWire(tf.identity(x), s.dtype), inputs,
            stage.inputs_spec)
      state0 = stage.state0
      if self._GivesState(stage):
        state0 = state0.Pack(carry.state)
      theta = stage.theta.Transform(tf.identity)
      self._EnterAccumulators(stage, carry)
      state1, extras = stage.Call(theta, state0, inputs, seed, micro_batch_id)
      accumulators = self._LeaveAccumulators(stage)
    values = py_utils.NestedMap(
        outputs=state1, inputs=inputs, states=state0, extras=extras)
    start = self._written[k]
    written = [
        w.With(arrays).Write(t, values[key]).arrays
        for (key, w), arrays in zip(sorted(start.items()), carry.written)
    ]
    outputs = stage.cell_out(state1).Transform(slices.ToWire)
    after = py_utils.NestedMap(
        index=t + 1,
        state=state1.Flatten() if stage.carries_state else [],
        accumulators=accumulators,
        written=written)
    with tf.control_dependencies(
        outputs.Flatten() + after.state + after.accumulators):
      after.token = tf.identity(carry.token)
    return after, outputs

  def _EnterAccumulators(self, stage, carry):
    """Gives the stage's accumulators the values carried round the loop."""
    if stage.accumulators is None:
      return
    values = stage.accumulators.GetAccumulatorValues()
    stage.accumulators.SetAccumulatorValues(values.Pack(carry.accumulators))

  def _LeaveAccumulators(self, stage):
    """The accumulators' values, to carry on; none stays behind in the layer."""
    if stage.accumulators is None:
      return []
    values = stage.accumulators.GetAccumulatorValues().Flatten()
    stage.accumulators.accumulators.Transform(lambda x: x.Reset())
    return values

  def _Finish(self, carries):
    """Sets the accumulators and self.kept; returns what Run does."""
    finals = []
    for k, (stage, carry) in enumerate(zip(self.stages, carries)):
      with tf.device(stage.device):
        if stage.accumulators is not None:
          values = stage.accumulators.GetAccumulatorValues()
          stage.accumulators.SetAccumulatorValues(
              values.Pack([tf.stop_gradient(x) for x in carry.accumulators]))
        written = {
            key: w.With(arrays) for (key, w), arrays in zip(
                sorted(self._written[k].items()), carry.written)
        }
        finals.append(stage.state0.Pack(carry.state))
        if k == len(self.stages) - 1:
          states = written['outputs'].Stack()
          detached = written['outputs'].Detached().Stack()
        if self._recompute:
          kept = {
              key: w.Detached() for key, w in dict(
                  dict(inputs=self._inputs), **written).items()
          }
          self.kept.append(
              recompute_lib.Kept(kept['inputs'], kept.get('states'),
                                 kept.get('extras'), self._numbers[k],
                                 carry.token))
    return states, detached, finals


def _Unpadded(padding):
  """The steps that aren't padding throughout.

  Args:
    padding: [time, ...], bool or a number; 0 or False where there is data.

  Returns:
    (first, one past last) such step, int32 scalars; (time, time) if there is
    none.
  """
  data = tf.reduce_any(
      tf.equal(tf.cast(padding, tf.float32), 0.),
      axis=list(range(1, padding.shape.rank)))
  time = tf.shape(data)[0]
  steps = tf.cast(tf.where(data)[:, 0], tf.int32)
  first = tf.reduce_min(tf.concat([steps, [time]], 0))
  last = tf.reduce_max(tf.concat([steps, [first - 1]], 0))
  return first, last + 1


def _Link(loop, states, detached, finals, recompute, zeros_for_unused):
  """Gives the loop's outputs their gradient.

  Args:
    loop: The _ForwardLoop.
    states: NestedMap of its outputs.
    detached: The same, without a data edge from the loop.
    finals: A list of NestedMaps, the final states.
    recompute: `always` or `never`.
    zeros_for_unused: As in StackedRecurrent.

  Returns:
    (outputs, final states) with that gradient.
  """
  stages = loop.stages
  xs = [_Floats(s.theta) + _Floats(s.state0) + s.captures for s in stages]
  xs[0] += _Floats(loop.inputs)

  def Recomputed(d_states, d_finals):
    grads, d_inputs = recompute_lib.BackwardLoop(
        stages, loop.kept, loop.begin, loop.limit, loop.length,
        _Refill(states, d_states), list(map(_Refill, finals, d_finals)),
        loop.parallel_iterations)
    found = [
        _Pick(s.theta, g.theta) + _Pick(s.state0, g.state0) + g.captures
        for s, g in zip(stages, grads)
    ]
    found[0] += _Pick(loop.inputs, d_inputs)
    return found

  def Stored(d_states, d_finals):
    ys = _Floats(states) + sum(map(_Floats, finals), [])
    return recompute_lib.StoredGradients(
        ys, d_states + sum(d_finals, []), xs)

  def Gradients(d_states, d_finals):
    make = Recomputed if recompute == 'always' else Stored
    found = make(d_states, d_finals)
    if zeros_for_unused:
      found = [[tf.zeros_like(x) if d is None else d for x, d in zip(*pair)]
               for pair in zip(xs, found)]
    return found

  ys, linked = gradient_link.Link([s.device for s in stages], xs,
                                  _Floats(detached),
                                  [_Floats(f) for f in finals], Gradients)
  return (_Replace(detached, ys),
          [_Replace(f, l) for f, l in zip(finals, linked)])


def _Floats(nmap):
  """The differentiable tensors of a NestedMap, a list."""
  return [x for x in nmap.Flatten() if Differentiable(x)]


def _Pick(nmap, grads):
  """Of grads, a list after nmap.Flatten(), those of differentiable tensors."""
  return [d for x, d in zip(nmap.Flatten(), grads) if Differentiable(x)]


def _Replace(nmap, floats):
  """nmap with its differentiable tensors replaced by floats."""
  floats = iter(floats)
  return nmap.Pack(
      [next(floats) if Differentiable(x) else x for x in nmap.Flatten()])


def _Refill(nmap, floats):
  """The inverse of _Pick: None for what isn't differentiable."""
  floats = iter(floats)
  return [next(floats) if Differentiable(x) else None for x in nmap.Flatten()]
