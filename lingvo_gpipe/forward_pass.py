"""The forward pass: what each stage does with one micro-batch, in a loop's body.

    x = inputs[t]
    for k in range(K):
      with device(k), after(stage k's micro-batch t - 1):
        state[k], extras = cell_fn[k](theta[k], state[k], x)
        x = cell_out[k](state[k])
    outputs[t] = state[K - 1]

TensorFlow's executor overlaps the loop's iterations: stage 0 begins micro-batch
t + 1 while stage 1 has t, which is the pipeline. The transfers between devices,
and hosts, are the ones that TensorFlow itself puts into a graph. A token that
each stage carries round the loop keeps its micro-batches in order and one at a
time, so that memory doesn't grow to that of the whole batch.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import backward_order
from lingvo_gpipe import kept_results
from lingvo_gpipe import micro_batch
from lingvo_gpipe import placement
from lingvo_gpipe import slices
from lingvo_gpipe.loop_accumulators import LoopAccumulators
from lingvo_gpipe.stage import Differentiable
from lingvo_gpipe.stage import Replace
from lingvo_gpipe.stage import Specs


class Visit:
  """What a stage's cell got and gave for one micro-batch.

  Attributes:
    theta, state0, inputs: NestedMaps that the cell gets.
    state1: NestedMap that it gave, or None if it is to be run again for that.
    extras: NestedMap that it gave, or None where no cell_grad wants it.
    products: The results of all its products (kept_results.py), where it ran.
    results: Those that were kept, where it is to be run again; else None.
  """

  def __init__(self, theta, state0, inputs, state1=None, extras=None,
               products=None, results=None):
    self.theta = theta
    self.state0 = state0
    self.inputs = inputs
    self.state1 = state1
    self.extras = extras
    self.products = products
    self.results = results


class Kept:
  """What the forward pass leaves for the gradient of one stage.

  Attributes:
    done: int32 scalar, ready when the stage's forward work is.
  """

  def __init__(self, stage, written, done):
    self._stage = stage
    self._written = written
    self.done = done

  def Visit(self, t):
    """The Visit of micro-batch t, its cell to be run again."""
    stage = self._stage
    found = {key: w.Read(t) for key, w in self._written.items()}
    return Visit(
        stage.Weights(stage.theta), found.get('states', stage.state0),
        found['inputs'], extras=found.get('extras'),
        results=found['results'].Flatten() if 'results' in found else None)


class ForwardPass:
  """The forward pass.

  Attributes:
    stages: The Stages.
    numbers: RandomNumbers of each stage.
    inputs: NestedMap of the first stage's inputs, on its device.
    order: Once finished and if ordered, a float32 scalar for each stage, of
      which the gradient must be asked too, that of each being 0.
  """

  def __init__(self, stages, inputs, layout, seed, seed_by_stage=False,
               out_layout=None, aside=None, unused_state=False, keep=(),
               ordered=False):
    """Constructor.

    Args:
      stages: A list of Stages, traced.
      inputs: NestedMap of tensors that lie in `layout`.
      layout: slices.Stacked or slices.Rows.
      seed: int64 scalar, the step seed outside of the loop.
      seed_by_stage: Whether random ops differ by stage, of themselves.
      out_layout: How the last stage's states are to lie. None: in `layout`.
      aside: None, or what more the last stage gets: a function from the number
        of the micro-batch to a NestedMap. The stage's inputs are then a
        NestedMap of `x`, what the stage before gives, and `aside`.
      unused_state: Whether no cell reads its state0.
      keep: What the gradient will want: some of 'inputs', 'states', 'extras',
        'results'.
      ordered: Whether TensorFlow is to take the loop's gradients, and in order
        (backward_order.py).
    """
    self.stages = stages
    step = py_utils.GetGlobalStep()
    self.numbers = [
        micro_batch.RandomNumbers(s, seed, step, seed_by_stage) for s in stages
    ]
    self._layout = layout
    self._out_layout = out_layout or layout
    self._aside = aside
    self._unused_state = unused_state
    self._keep = keep
    self._ordered = ordered
    self.order = []  # The tokens of backward_order.py after the loop.
    with tf.device(stages[0].device):
      self.inputs = inputs.Transform(tf.identity)
      read = slices.Slices.Of if ordered else slices.Readable
      self._inputs = read(self.inputs, layout)
    self._written = [None] * len(stages)  # The Slices before the loop.
    self._accumulators = [LoopAccumulators(s.accumulators) for s in stages]
    if ordered:
      self._FindGradients()

  def _FindGradients(self):
    """Has each stage find what has a gradient, given what the next one wants."""
    wanted = None
    for stage in reversed(self.stages):
      if not stage.gives_states or stage.carries_state:
        wanted = None
      wanted = stage.FindGradients(wanted)

  def GivesState(self, k):
    """Whether stage k's cell reads a state that changes."""
    return self.stages[k].carries_state and not self._unused_state

  def _HasAside(self, k):
    return self._aside is not None and k == len(self.stages) - 1

  def FromBefore(self, k, inputs):
    """Of a NestedMap like stage k's inputs, what the stage before gives."""
    return inputs.x if self._HasAside(k) else inputs

  def Start(self, begin):
    """What the stages carry round the loop, at its start: a list."""
    return [self._StartStage(k, begin) for k in range(len(self.stages))]

  def _StartStage(self, k, begin):
    stage = self.stages[k]
    written = py_utils.NestedMap()
    # What a stage passes on may differ in shape by micro-batch.
    apart = slices.Stacked(self._layout.length, alike=False)
    specs = {'results': py_utils.NestedMap(results=stage.selection.specs)}
    if k > 0:  # What comes into the first stage is there anyway.
      specs['inputs'] = stage.inputs_spec
    if self.GivesState(k):
      specs['states'] = Specs(stage.state0)
    if stage.cell_grad is not None:
      specs['extras'] = stage.extras_spec
    with tf.device(stage.device):
      if k == len(self.stages) - 1:
        written.outputs = slices.Slices(stage.state1_spec, self._out_layout)
      for key in sorted(set(self._keep) & set(specs)):
        written[key] = slices.Slices(specs[key], apart)
      carry = py_utils.NestedMap(
          index=placement.Counter(begin, stage.device),
          token=tf.constant(0),
          order=[tf.constant(0.)] if self._ordered else [],
          state=stage.state0.Flatten(),
          accumulators=self._accumulators[k].Start(),
          written=[w.arrays for _, w in sorted(written.items())])
    self._written[k] = written
    return carry

  def Step(self, carries):
    """Runs all stages on one micro-batch.

    Args:
      carries: A list, as Start gave it or the last Step.

    Returns:
      (carries, a Visit for each stage).
    """
    after, visits = [], []
    outputs = None
    for k, carry in enumerate(carries):
      with tf.device(self.stages[k].device):
        carry, outputs, visit = self._StepStage(k, carry, outputs)
      after.append(carry)
      visits.append(visit)
    return after, visits

  def _StepStage(self, k, carry, arrived):
    """(carry, what travels on, the Visit) of stage k."""
    stage = self.stages[k]
    t = carry.index
    seed, step = self.numbers[k].At(t)
    # Ops that wait for nothing else (reads, casts of weights, random numbers)
    # wait for the micro-batch before.
    with tf.control_dependencies([carry.token]):
      inputs = self._Inputs(k, t, arrived)
      state0 = stage.state0
      if self.GivesState(k):
        state0 = state0.Pack(carry.state)
      theta = stage.Weights(stage.theta)
      order = carry.order
      if order:
        theta, inputs, order = self._Begin(k, theta, inputs, order)
      self._accumulators[k].Enter(carry.accumulators)
      with kept_results.Products() as products:
        state1, extras = stage.Call(theta, state0, inputs, seed, step)
      accumulators = self._accumulators[k].Leave()
      state1 = state1.Transform(
          lambda x: _Checked(x, stage.name) if Differentiable(x) else x)
      if order:
        returned = [x for x, r in zip(state1.Flatten(), stage.returned) if r]
        returned, token = backward_order.End(stage.device, returned, *order)
        state1, order = Replace(state1, stage.returned, returned), [token]
    visit = Visit(theta, state0, inputs, state1, extras, products)
    outputs = stage.cell_out(state1).Transform(slices.ToWire)
    after = py_utils.NestedMap(
        index=t + 1,
        state=state1.Flatten() if stage.carries_state else [],
        order=order,
        accumulators=accumulators,
        written=self._Write(k, carry, visit))
    with tf.control_dependencies(
        outputs.Flatten() + after.state + after.accumulators):
      after.token = tf.identity(carry.token)
    return after, outputs, visit

  def _Begin(self, k, theta, inputs, order):
    """backward_order.Begin of stage k: (theta, inputs, the token in a list)."""
    stage = self.stages[k]
    trained, passed_back = stage.trained, stage.passed_back
    if k == 0:  # Nobody may want the gradient of the first stage's inputs.
      passed_back = [False] * len(passed_back)
    waited_for = [x for x, w in zip(theta.Flatten() + inputs.Flatten(),
                                    trained + passed_back) if w]
    tensors, token = backward_order.Begin(stage.device, waited_for, *order)
    num = sum(trained)
    return (Replace(theta, trained, tensors[:num]),
            Replace(inputs, passed_back, tensors[num:]), [token])

  def _Inputs(self, k, t, arrived):
    """The inputs of stage k, of which `arrived` come from the stage before."""
    spec = self.FromBefore(k, self.stages[k].inputs_spec)
    if k == 0:
      inputs = self._inputs.Read(t)
    else:
      inputs = py_utils.Transform(
          lambda x, s: slices.FromWire(tf.identity(x), s.dtype), arrived, spec)
    if self._HasAside(k):
      inputs = py_utils.NestedMap(x=inputs, aside=self._aside(t))
    return inputs

  def _Write(self, k, carry, visit):
    """The TensorArrays of stage k with this micro-batch's slices."""
    values = dict(
        outputs=visit.state1, inputs=visit.inputs, states=visit.state0,
        extras=visit.extras)
    if 'results' in self._keep:
      values['results'] = py_utils.NestedMap(
          results=self.stages[k].selection.Of(visit.products))
    return [
        w.With(arrays).Write(carry.index, values[key]).arrays
        for (key, w), arrays in zip(sorted(self._written[k].items()),
                                    carry.written)
    ]

  def Finish(self, carries):
    """Takes what comes out of the loop, and sets the accumulators.

    Args:
      carries: The carries after the last step.

    Returns:
      (NestedMap of the last stage's states in the layout, the same without a
      data edge from the loop, the list of final states, a Kept for each stage if
      anything was kept).
    """
    finals, kept = [], []
    self.order = sum([carry.order for carry in carries], [])
    for k, (stage, carry) in enumerate(zip(self.stages, carries)):
      with tf.device(stage.device):
        self._accumulators[k].Finish(carry.accumulators)
        written = {
            key: w.With(arrays) for (key, w), arrays in zip(
                sorted(self._written[k].items()), carry.written)
        }
        finals.append(stage.state0.Pack(carry.state))
        if k == len(self.stages) - 1:
          outputs = written.pop('outputs')
          states, detached = outputs.Join(), outputs.Detached().Join()
        if k == 0:
          written['inputs'] = self._inputs
        if self._keep:
          kept.append(
              Kept(stage, {key: w.Detached() for key, w in written.items()},
                   carry.token))
    return states, detached, finals, kept


def _Checked(x, stage_name):
  """x, checked under --enable_check_numerics, so that NaN names its stage."""
  return py_utils.CheckNumerics(
      x, f'{stage_name}: a micro-batch comes out with a value that is not finite')
