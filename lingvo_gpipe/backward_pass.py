"""The backward pass: what each stage does for one micro-batch's gradients.

With recomputation the forward pass keeps each stage's boundary activation, the
input it got for the micro-batch, and nothing else. A stage then runs its cell
again and takes gradients at once, so that the intermediate values of one
micro-batch live on a stage at a time (GPipe, section 2.3). It begins to
recompute as soon as it is done with the micro-batch before, without waiting for
the gradient to arrive: only the second half of its work depends on that.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import kept_results
from lingvo_gpipe import slices
from lingvo_gpipe.stage import AmongNones
from lingvo_gpipe.stage import Dense
from lingvo_gpipe.stage import Differentiable
from lingvo_gpipe.stage import Floats


class StageGradients:
  """Gradients of one stage. Lists follow Flatten(); None means no gradient."""

  def __init__(self, theta, state0, captures):
    self.theta = theta
    self.state0 = state0
    self.captures = captures


class BackwardPass:
  """The backward pass."""

  def __init__(self, forward, layout, d_finals):
    """Constructor.

    Args:
      forward: The ForwardPass whose gradient it takes.
      layout: How micro-batches lie in the gradients of the inputs.
      d_finals: For each stage, a list of gradients of its final state.
    """
    self._stages = forward.stages
    self._steps = [
        _StageBackward(forward, k, d_finals[k])
        for k, stage in enumerate(self._stages)
    ]
    with tf.device(self._stages[0].device):
      self._inputs_spec = forward.FromBefore(0, self._stages[0].inputs_spec)
      self._d_inputs = slices.Slices(
          py_utils.NestedMap(floats=Floats(self._inputs_spec)), layout)
    self._saw_inputs = {}

  def Start(self, tokens):
    """What the stages carry round the loop, at its start.

    Args:
      tokens: For each stage, a scalar on its device; it begins after that.

    Returns:
      NestedMap.
    """
    return py_utils.NestedMap(
        stages=[step.Start(token) for step, token in zip(self._steps, tokens)],
        written=self._d_inputs.arrays)

  def Step(self, carry, indices, visits, d_state1):
    """Takes the gradients of one micro-batch.

    Args:
      carry: As Start gave it, or the last Step.
      indices: The number of the micro-batch, an int32 scalar for each stage.
      visits: For each stage, a function that gives the micro-batch's Visit.
      d_state1: NestedMap of the gradients of the last stage's state1.

    Returns:
      The carry afterwards.
    """
    after = py_utils.NestedMap(stages=list(carry.stages))
    for k in reversed(range(len(self._stages))):
      stage = self._stages[k]
      with tf.device(stage.device):
        after.stages[k], inputs, d_inputs = self._steps[k].Step(
            carry.stages[k], indices[k], visits[k], d_state1)
        if k > 0:
          d_state1 = self._stages[k - 1].cell_out_grad(d_inputs)
    for key, d in d_inputs.FlattenItems():
      self._saw_inputs[key] = self._saw_inputs.get(key) or d is not None
    with tf.device(self._stages[0].device):
      after.written = self._d_inputs.With(carry.written).Write(
          indices[0],
          py_utils.NestedMap(floats=_ZerosForNone(d_inputs, inputs))).arrays
    return after

  def Finish(self, carry):
    """The gradients after the loop.

    Args:
      carry: After the last step.

    Returns:
      (a StageGradients for each stage, the list of gradients of the joined
      inputs).
    """
    with tf.device(self._stages[0].device):
      joined = AmongNones(self._inputs_spec,
                          self._d_inputs.With(carry.written).Join().floats)
    d_joined = [
        d if self._saw_inputs.get(key) else None
        for key, d in joined.FlattenItems()
    ]
    return [s.Finish(c) for s, c in zip(self._steps, carry.stages)], d_joined


class _StageBackward:
  """One stage's part of it.

  Sums of gradients are kept for each weight that may have one. Whether it has
  shows only once the body is built; a sum without a gradient goes round the
  loop unused, and TensorFlow drops it from the graph.
  """

  def __init__(self, forward, k, d_final):
    stage = forward.stages[k]
    self._forward = forward
    self._k = k
    self._stage = stage
    self._d_final = d_final
    self._trainable = self._Trainable(stage.theta.Flatten())
    self._seen_theta = [False] * len(self._trainable)
    self._seen_captures = [False] * len(stage.captures)

  def Start(self, token):
    """What the stage carries round the loop, at its start."""
    stage = self._stage
    with tf.device(stage.device):
      return py_utils.NestedMap(
          token=tf.identity(token),
          theta=[_ZeroSum(x) for x in self._trainable],
          captures=[_ZeroSum(x) for x in stage.captures],
          state=[d for d in self._d_final if d is not None])

  def Step(self, carry, t, visit, d_state1):
    """Takes the gradients of one micro-batch.

    Args:
      carry: As Start made it.
      t: int32 scalar, the number of the micro-batch.
      visit: A function that gives its Visit.
      d_state1: NestedMap of the gradients of state1 that come from the next
        stage; what has none may be missing.

    Returns:
      (the carry afterwards, NestedMap of the inputs that came from the stage
      before, NestedMap of their gradients, None for none).
    """
    stage = self._stage
    # Ops that wait for nothing else wait for the micro-batch before; without
    # it the loop runs ahead and holds every micro-batch's values at once.
    with tf.control_dependencies([carry.token]):
      visit = visit()
      d_state1 = _Sum(stage.state1_spec, d_state1, self._Fit(carry.state))
      d_theta, d_state0, d_inputs, d_captures = self._Gradients(
          visit, t, d_state1)
    inputs, d_inputs = [
        self._forward.FromBefore(self._k, m) for m in (visit.inputs, d_inputs)
    ]
    after = py_utils.NestedMap(
        theta=self._Add(carry.theta, d_theta, self._seen_theta),
        captures=self._Add(carry.captures, d_captures, self._seen_captures),
        state=self._NextState(carry.state, d_state0))
    work = after.theta + after.captures + after.state
    if self._k > 0:
      # The first stage's are dropped from the graph unless somebody asks.
      work += [d for d in d_inputs.Flatten() if d is not None]
    with tf.control_dependencies(work):
      after.token = tf.identity(carry.token)
    return after, inputs, d_inputs

  def Finish(self, carry):
    """The StageGradients after the loop."""
    d_theta = iter(self._Sums(carry.theta, self._trainable, self._seen_theta))
    return StageGradients(
        [next(d_theta) if t else None for t in self._stage.trainable],
        self._Fit(carry.state),
        self._Sums(carry.captures, self._stage.captures, self._seen_captures))

  def _Trainable(self, theta):
    """Of a list after theta.Flatten(), what may have a gradient."""
    return [x for x, t in zip(theta, self._stage.trainable) if t]

  def _Gradients(self, visit, t, d_state1):
    """(_Trainable d_theta, d_state0, a NestedMap of d_inputs, d_captures)."""
    stage = self._stage
    if stage.cell_grad is not None:
      with stage.AccumulatorsDisabled():
        d_theta, d_state0, d_inputs, _ = stage.cell_grad(
            visit.theta, visit.state0, visit.inputs, visit.extras,
            _Fill(stage.state1_spec, d_state1, zeros=True))
      return self._Trainable(d_theta.Flatten()), d_state0.Flatten(), d_inputs, []
    state1, products = visit.state1, None
    if state1 is None:
      seed, step = self._forward.numbers[self._k].At(t)
      with stage.AccumulatorsDisabled(), kept_results.Products() as products:
        state1, _ = stage.Call(visit.theta, visit.state0, visit.inputs, seed, step)
    grads = self._Backpropagate(visit, state1, d_state1)
    if products is not None and visit.results is not None:
      kept_results.Replace(stage.selection.Of(products), visit.results)
    return grads

  def _Backpropagate(self, visit, state1, d_state1):
    stage = self._stage
    pairs = [(y, d) for y, d in zip(state1.Flatten(), d_state1.Flatten())
             if d is not None]
    theta = self._Trainable(visit.theta.Flatten())
    own = [visit.state0, visit.inputs]
    # Any of them may be behind another, but that part of its gradient is taken
    # outside.
    stop = theta + sum(map(Floats, own), []) + stage.captures
    found = [None] * len(stop)
    if pairs:
      ys, d_ys = zip(*pairs)
      found = tf.gradients(
          list(ys), stop, list(d_ys), colocate_gradients_with_ops=True,
          stop_gradients=stop)
    found = iter(found)
    d_theta = [next(found) for _ in theta]
    d_state0, d_inputs = [AmongNones(m, found) for m in own]
    # The state's goes round the loop, which carries no IndexedSlices.
    return d_theta, Dense(d_state0.Flatten()), d_inputs, list(found)

  def _Add(self, sums, grads, seen):
    """sums + grads, of which some may be None; `seen` is set for the others."""
    out = []
    for i, (total, d) in enumerate(zip(sums, grads)):
      if d is not None:
        seen[i] = True
        total += tf.cast(tf.convert_to_tensor(d), total.dtype)
      out.append(total)
    return out

  def _Sums(self, sums, values, seen):
    """The sums as gradients of the values; None where there is none."""
    with tf.device(self._stage.device):
      return [
          tf.cast(total, x.dtype) if s else None
          for total, x, s in zip(sums, values, seen)
      ]

  def _NextState(self, before, grads):
    """The gradients of the state before, for the iteration that follows."""
    before = iter(before)
    out = []
    for d_final, d in zip(self._d_final, grads):
      if d_final is None:
        continue
      old = next(before)
      changes = d is not None and self._forward.GivesState(self._k)
      out.append(d if changes else tf.zeros_like(old))
    return out

  def _Fit(self, floats):
    """The list of all states' gradients, from that of the floats."""
    floats = iter(floats)
    return [None if d is None else next(floats) for d in self._d_final]


def Wanted(stages, inputs):
  """For each stage, the list of tensors that want a gradient.

  Args:
    stages: The Stages.
    inputs: NestedMap of the first stage's inputs; they count as its tensors.
  """
  xs = [Floats(s.theta) + Floats(s.state0) + s.captures for s in stages]
  xs[0] += Floats(inputs)
  return xs


def Found(stages, inputs, grads, d_inputs):
  """What BackwardPass.Finish gives, in the order of `Wanted`."""
  found = [
      _Pick(s.theta, g.theta) + _Pick(s.state0, g.state0) + g.captures
      for s, g in zip(stages, grads)
  ]
  found[0] += _Pick(inputs, d_inputs)
  return found


def _Pick(nmap, grads):
  """Of grads, a list after nmap.Flatten(), those of differentiable tensors."""
  return [d for x, d in zip(nmap.Flatten(), grads) if Differentiable(x)]


def _ZeroSum(x):
  """Zeros to add gradients of x to; half-precision ones are summed in float32."""
  dtype = tf.float32 if x.dtype in (tf.float16, tf.bfloat16) else x.dtype
  if x.shape.is_fully_defined():
    return tf.zeros(x.shape, dtype)
  return tf.zeros_like(x, dtype)


def _ZerosForNone(grads, values):
  """The list of grads of the differentiable values, zeros where there is none."""
  return [
      tf.zeros_like(x) if d is None else d
      for d, x in zip(grads.Flatten(), values.Flatten()) if Differentiable(x)
  ]


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
