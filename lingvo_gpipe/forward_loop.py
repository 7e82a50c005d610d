"""The recurrent loop: one while loop whose body runs every stage on its device.

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
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import micro_batch
from lingvo_gpipe import placement
from lingvo_gpipe import recompute as recompute_lib
from lingvo_gpipe import slices
from lingvo_gpipe.stage import Differentiable
from lingvo_gpipe.stage import Specs


class ForwardLoop:
  """The forward loop and what it leaves behind."""

  def __init__(self, stages, inputs, layout, seed, first_id, unused_state,
               recompute):
    self.stages = stages
    self.layout = layout
    self._recompute = recompute == 'always'
    self._unused_state = unused_state
    padding = inputs.get('padding')
    with tf.device(stages[0].device):
      self.begin, self.limit = 0, layout.length
      if padding is not None:
        self.begin, self.limit = _Unpadded(padding)
      self.inputs = inputs.Transform(tf.identity)
      self._inputs = slices.Slices.Of(self.inputs, layout)
    self._numbers = [
        micro_batch.RandomNumbers(s, seed, first_id) for s in stages
    ]
    self._written = [None] * len(stages)  # The Slices before the loop.
    self.kept = []  # Filled by Run; a recompute_lib.Kept for each stage.

  def Run(self):
    """Builds the loop.

    Returns:
      (NestedMap of the last stage's states [time, ...], the same without a data
      edge from the loop, list of final states).
    """
    stages = self.stages
    carries = [self._Start(k) for k in range(len(stages))]
    i = placement.Counter(self.begin, placement.HostOf(stages[0].device))
    with tf.device(None), tf.device(placement.BesideInput):
      _, end = tf.while_loop(
          lambda i, _: i < self.limit, self._Body,
          [i, carries],
          parallel_iterations=self.layout.most,
          back_prop=not self._recompute, name='forward')
    return self._Finish(end)

  def _Start(self, k):
    """What stage k carries round the loop, at its start."""
    stage = self.stages[k]
    written = py_utils.NestedMap()
    apart = slices.Stacked(self.layout.length)
    with tf.device(stage.device):
      if k == len(self.stages) - 1:
        written.outputs = slices.Slices(stage.state1_spec, self.layout)
      if self._recompute:
        if k > 0:
          written.inputs = slices.Slices(stage.inputs_spec, apart)
        if self._GivesState(stage):
          written.states = slices.Slices(Specs(stage.state0), apart)
        if stage.cell_grad is not None:
          written.extras = slices.Slices(stage.extras_spec, apart)
      accumulators = []
      if stage.accumulators is not None:
        values = stage.accumulators.GetAccumulatorValues()
        accumulators = [tf.identity(x) for x in values.Flatten()]
      carry = py_utils.NestedMap(
          index=placement.Counter(self.begin, stage.device),
          token=tf.constant(0),
          state=stage.state0.Flatten(),
          accumulators=accumulators,
          written=[w.arrays for _, w in sorted(written.items())])
    self._written[k] = written
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
      state1 = state1.Transform(
          lambda x: _Checked(x, stage.name) if Differentiable(x) else x)
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
          states = written['outputs'].Join()
          detached = written['outputs'].Detached().Join()
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


def _Checked(x, stage_name):
  """x, checked under --enable_check_numerics, so that NaN names its stage."""
  return py_utils.CheckNumerics(
      x, f'{stage_name}: a micro-batch comes out with a value that is not finite')


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
