"""The gradient of the recurrent loop, with recomputation.

The forward loop keeps each stage's boundary activation, the input it got for
each micro-batch, and nothing else. `BackwardLoop` is a second while loop that
takes the micro-batches in reverse order: a stage reads its boundary activation,
runs its cell again, and takes gradients at once, so that the intermediate
values of one micro-batch live on a stage at a time (GPipe, section 2.3). A
stage begins to recompute as soon as it is done with the micro-batch before,
without waiting for the gradient to arrive: only the second half of its work
depends on that.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import lingvo_compat
from lingvo_gpipe import placement
from lingvo_gpipe import slices
from lingvo_gpipe.stage import Differentiable


class Kept:
  """What the forward loop leaves to the backward loop, for one stage.

  Attributes:
    inputs: Slices, the stage's input for each micro-batch.
    states: Slices of the state before each micro-batch, or None where the cell
      is given state0 each time.
    extras: Slices of the cell's extras, or None where no cell_grad wants them.
    numbers: RandomNumbers, the seeds of the stage's random ops.
    done: int32 scalar, ready when the stage's forward work is.
  """

  def __init__(self, inputs, states, extras, numbers, done):
    self.inputs = inputs
    self.states = states
    self.extras = extras
    self.numbers = numbers
    self.done = done


class StageGradients:
  """Gradients of one stage. Lists follow Flatten(); None means no gradient."""

  def __init__(self, theta, state0, captures):
    self.theta = theta
    self.state0 = state0
    self.captures = captures


@lingvo_compat.GraphLoops()
def BackwardLoop(stages, kept, begin, limit, layout, d_outputs, d_finals):
  """Builds the backward loop.

  Args:
    stages: The Stages, in forward order.
    kept: A Kept for each stage.
    begin: The first micro-batch, an int or int32 scalar.
    limit: One past the last micro-batch, an int or int32 scalar.
    layout: How micro-batches lie in the inputs and outputs (slices.py).
    d_outputs: The gradients of the last stage's joined state1; a list after
      Flatten(), None for what isn't differentiable.
    d_finals: For each stage, a list of gradients of its final state.

  Returns:
    (a StageGradients for each stage, the list of gradients of the joined
    inputs).
  """
  last = len(stages) - 1
  backwards = [
      _StageBackward(stage, k, d_final, first=stage is stages[0])
      for stage, k, d_final in zip(stages, kept, d_finals)
  ]
  with tf.device(stages[last].device):
    outputs_spec = _Floats(stages[last].state1_spec)
    d_out = slices.Slices.Of(
        outputs_spec.Pack([d for d in d_outputs if d is not None]), layout)
  with tf.device(stages[0].device):
    d_inputs = slices.Slices(_Floats(stages[0].inputs_spec), layout)
  first = placement.Counter(limit - 1, placement.HostOf(stages[last].device))

  def Body(i, carries, d_inputs_arrays):
    d_next = None
    after = [None] * len(stages)
    for k in reversed(range(len(stages))):
      stage, backward = stages[k], backwards[k]
      with tf.device(stage.device):
        t = carries[k].index
        if k == last:
          d_state1 = _Fill(stage.state1_spec, d_out.Read(t))
        else:
          d_state1 = stage.cell_out_grad(d_next)
        after[k], d_next = backward.Step(carries[k], d_state1)
        if k == 0:
          written = d_inputs.With(d_inputs_arrays).Write(t, d_next)
    return i - 1, after, written.arrays

  carries = [b.Start(limit) for b in backwards]
  with tf.device(None), tf.device(placement.BesideInput):
    _, carries, arrays = tf.while_loop(
        lambda i, *_: i >= begin, Body, [first, carries, d_inputs.arrays],
        parallel_iterations=layout.most, back_prop=False,
        name='backward')
  with tf.device(stages[0].device):
    joined = dict(d_inputs.With(arrays).Join().FlattenItems())
  d_joined = [
      joined.get(key) if backwards[0].saw_inputs.get(key) else None
      for key, _ in stages[0].inputs_spec.FlattenItems()
  ]
  return [b.Finish(c) for b, c in zip(backwards, carries)], d_joined


@lingvo_compat.GraphLoops()
def StoredGradients(ys, d_ys, xs):
  """Gradients without recomputation, from values that the forward loop kept.

  Args:
    ys: The loop's differentiable outputs.
    d_ys: Their gradients.
    xs: For each stage, the list of tensors that want a gradient.

  Returns:
    For each stage, the list of gradients of its xs. A tensor that several
    stages use has its whole gradient at the first of them, None at the others.
  """
  unique = {}
  for x in sum(xs, []):
    unique.setdefault(id(x), x)
  with tf.device(None), tf.device(placement.BesideInput):
    grads = tf.gradients(
        ys, list(unique.values()), d_ys, colocate_gradients_with_ops=True)
  grads = dict(zip(unique, grads))
  return [[grads.pop(id(x), None) for x in tensors] for tensors in xs]


class _StageBackward:
  """One stage's part of the backward loop's body.

  Sums of gradients are kept for each floating-point weight. Whether a weight
  has a gradient at all shows only once the body is built; a sum without one
  goes round the loop unused, and TensorFlow drops it from the graph.
  """

  def __init__(self, stage, kept, d_final, first):
    self._stage = stage
    self._first = first
    self._kept = kept
    self._d_final = d_final
    self._theta = stage.theta.Flatten()
    self._seen_theta = [False] * len(self._theta)
    self._seen_captures = [False] * len(stage.captures)
    self.saw_inputs = {}

  def Start(self, limit):
    """What the stage carries round the loop, at its start."""
    stage = self._stage
    with tf.device(stage.device):
      carry = py_utils.NestedMap(
          index=placement.Counter(limit - 1, stage.device),
          token=self._kept.done,
          theta=[_ZeroSum(x) for x in self._theta if Differentiable(x)],
          captures=[_ZeroSum(x) for x in stage.captures],
          state=[d for d in self._d_final if d is not None])
    return carry

  def Step(self, carry, d_state1):
    """Recomputes the cell for one micro-batch and takes its gradients.

    Args:
      carry: As Start made it.
      d_state1: NestedMap of the gradients of state1 that come from the next
        stage; None where there is none.

    Returns:
      (the carry afterwards, NestedMap of the gradients of the inputs; for the
      first stage, of those that are differentiable, zeros for none).
    """
    stage, kept = self._stage, self._kept
    # Ops that wait for nothing else wait for the micro-batch before; without
    # it the loop runs ahead and holds every micro-batch's values at once.
    with tf.control_dependencies([carry.token]):
      inputs = kept.inputs.Read(carry.index)
      state0 = kept.states.Read(carry.index) if kept.states else stage.state0
      theta = stage.theta.Transform(tf.identity)
      d_theta, d_state0, d_inputs, d_captures = self._Gradients(
          theta, state0, inputs, carry, d_state1)
    for key, d in d_inputs.FlattenItems():
      self.saw_inputs[key] = self.saw_inputs.get(key) or d is not None
    after = py_utils.NestedMap(
        index=carry.index - 1,
        theta=self._Add(carry.theta, d_theta, self._theta, self._seen_theta),
        captures=self._Add(carry.captures, d_captures, stage.captures,
                           self._seen_captures),
        state=self._NextState(carry.state, d_state0))
    work = after.theta + after.captures + after.state
    if not self._first:
      # The first stage's are dropped from the graph unless somebody asks.
      work += [d for d in d_inputs.Flatten() if d is not None]
    with tf.control_dependencies(work):
      after.token = tf.identity(carry.token)
    if self._first:
      d_inputs = _ZerosForNone(d_inputs, inputs)
    return after, d_inputs

  def Finish(self, carry):
    """The StageGradients after the loop."""
    return StageGradients(
        self._Sums(carry.theta, self._theta, self._seen_theta),
        self._Fit(carry.state),
        self._Sums(carry.captures, self._stage.captures, self._seen_captures))

  def _Gradients(self, theta, state0, inputs, carry, d_state1):
    stage, kept = self._stage, self._kept
    seed, micro_batch_id = kept.numbers.At(carry.index)
    d_state1 = _Sum(stage.state1_spec, d_state1, self._Fit(carry.state))
    if stage.cell_grad is not None:
      with stage.AccumulatorsDisabled():
        d_theta, d_state0, d_inputs, _ = stage.cell_grad(
            theta, state0, inputs, kept.extras.Read(carry.index),
            _Fill(stage.state1_spec, d_state1, zeros=True))
      return d_theta.Flatten(), d_state0.Flatten(), d_inputs, []
    with stage.AccumulatorsDisabled():
      state1, _ = stage.Call(theta, state0, inputs, seed, micro_batch_id)
    pairs = [(y, d) for y, d in zip(state1.Flatten(), d_state1.Flatten())
             if d is not None]
    xs = py_utils.NestedMap(
        theta=theta.Flatten(), state0=state0.Flatten(),
        inputs=inputs.Flatten(), captures=list(stage.captures))
    flat = xs.Flatten()
    wanted = [x for x in flat if Differentiable(x)]
    found = [None] * len(wanted)
    if pairs:
      ys, d_ys = zip(*pairs)
      # A captured tensor may also be behind a weight or an input, but that part
      # of its gradient is taken outside.
      found = tf.gradients(
          list(ys), wanted, list(d_ys), colocate_gradients_with_ops=True,
          stop_gradients=wanted[:len(wanted) - len(stage.captures)])
    found = iter(found)
    grads = xs.Pack([next(found) if Differentiable(x) else None for x in flat])
    return grads.theta, grads.state0, inputs.Pack(grads.inputs), grads.captures

  def _Add(self, sums, grads, values, seen):
    """sums + grads, for the values that are differentiable."""
    sums = iter(sums)
    out = []
    for i, (x, d) in enumerate(zip(values, grads)):
      if not Differentiable(x):
        continue
      total = next(sums)
      if d is not None:
        seen[i] = True
        total += tf.cast(tf.convert_to_tensor(d), total.dtype)
      out.append(total)
    return out

  def _Sums(self, sums, values, seen):
    """The sums as gradients of the values; None where there is none."""
    sums = iter(sums)
    out = []
    for x, s in zip(values, seen):
      total = next(sums) if Differentiable(x) else None
      if total is not None:
        with tf.device(self._stage.device):
          total = tf.cast(total, x.dtype) if s else None
      out.append(total)
    return out

  def _NextState(self, before, grads):
    """The gradients of the state before, for the iteration that follows."""
    before = iter(before)
    out = []
    for d_final, d in zip(self._d_final, grads):
      if d_final is None:
        continue
      old = next(before)
      out.append(tf.zeros_like(old) if d is None or not self._kept.states else d)
    return out

  def _Fit(self, floats):
    """The list of all states' gradients, from that of the floats."""
    floats = iter(floats)
    return [None if d is None else next(floats) for d in self._d_final]


def _ZeroSum(x):
  """Zeros to add gradients of x to; half-precision ones are summed in float32."""
  dtype = tf.float32 if x.dtype in (tf.float16, tf.bfloat16) else x.dtype
  if x.shape.is_fully_defined():
    return tf.zeros(x.shape, dtype)
  return tf.zeros_like(x, dtype)


def _Floats(spec):
  """The part of a NestedMap of TensorSpec that is differentiable."""
  return spec.Filter(Differentiable)


def _ZerosForNone(grads, values):
  """grads of the differentiable values, zeros where there is none."""
  grads = dict(grads.FlattenItems())
  floats = values.Filter(Differentiable)
  return floats.Pack([
      tf.zeros_like(x) if grads[key] is None else grads[key]
      for key, x in floats.FlattenItems()
  ])


def _Fill(spec, found, zeros=False):
  """`found` with every key of spec; the missing are None, or zeros."""
  found = dict(found.FlattenItems())
  out = []
  for key, s in spec.FlattenItems():
    x = found.get(key)
    if x is None and zeros:
      x = tf.zeros(s.shape, s.dtype)
    out.append(x)
  return spec.Pack(out)


def _Sum(spec, nmap, others):
  """nmap + others, where a missing one adds nothing."""
  out = []
  others = list(others) or [None] * len(spec.Flatten())
  for a, b in zip(_Fill(spec, nmap).Flatten(), others):
    out.append(b if a is None else a if b is None else a + b)
  return spec.Pack(out)
