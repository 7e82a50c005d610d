"""A stage: one cell on one device, what it takes and gives, and how to call it.

A cell is a Python function, as in lingvo.core.recurrent:

    state1, extras = cell_fn(theta, state0, inputs)

`Stage.Trace` runs it once in a scratch graph, so that the loops know the
shapes and dtypes they carry before they are built, and so that a cell that
can't be pipelined is refused with its name, not by an error from inside a loop.
"""

import contextlib

import lingvo.compat as tf
from lingvo.core import computation_cost
from lingvo.core import py_utils

from lingvo_gpipe import called_functions
from lingvo_gpipe import graph_walk
from lingvo_gpipe import kept_results
from lingvo_gpipe import lingvo_compat

# Changes the value of a variable: once a micro-batch, and again when recomputed.
_ASSIGNMENTS = frozenset([
    'AssignVariableOp', 'AssignAddVariableOp', 'AssignSubVariableOp', 'Assign',
    'AssignAdd', 'AssignSub', 'ScatterUpdate', 'ResourceScatterUpdate',
    'ResourceScatterAdd', 'ResourceScatterSub', 'ResourceScatterNdUpdate',
    'ResourceScatterNdAdd', 'ResourceScatterNdSub', 'ResourceScatterMul',
    'ResourceScatterDiv', 'ResourceScatterMin', 'ResourceScatterMax',
    'ResourceStridedSliceAssign'
])
_RANDOM = frozenset([
    'RandomUniform', 'RandomUniformInt', 'RandomStandardNormal', 'RandomGamma',
    'RandomPoisson', 'RandomPoissonV2', 'RandomShuffle', 'RandomCrop',
    'TruncatedNormal', 'ParameterizedTruncatedNormal', 'Multinomial',
    'StatefulUniform', 'StatefulStandardNormal', 'StatefulStandardNormalV2',
    'StatefulTruncatedNormal', 'StatefulUniformInt', 'StatefulUniformFullInt',
    'StatefulRandomBinomial', 'NonDeterministicInts', 'UniformCandidateSampler',
    'LogUniformCandidateSampler', 'LearnedUnigramCandidateSampler',
    'FixedUnigramCandidateSampler', 'ThreadUnsafeUnigramCandidateSampler',
    'AllCandidateSampler', 'SampleDistortedBoundingBox',
    'SampleDistortedBoundingBoxV2', 'RngReadAndSkip', 'RngSkip'
])


def Differentiable(x):
  """Whether gradients flow through values of x's dtype (a tensor or a spec)."""
  dtype = tf.as_dtype(x.dtype)
  return dtype.is_floating or dtype.is_complex


def Specs(nmap):
  """The TensorSpecs of a NestedMap of tensors."""
  return nmap.Transform(lambda x: tf.TensorSpec(x.shape, x.dtype))


def Floats(nmap):
  """The differentiable tensors of a NestedMap, a list."""
  return [x for x in nmap.Flatten() if Differentiable(x)]


def ReplaceFloats(nmap, floats):
  """nmap with its differentiable tensors replaced by floats."""
  return Replace(nmap, [Differentiable(x) for x in nmap.Flatten()], floats)


def Dense(grads):
  """A list of gradients as tensors, also those that are slices; None stays None."""
  return [None if d is None else tf.convert_to_tensor(d) for d in grads]


def AmongNones(nmap, floats):
  """nmap with its differentiable tensors replaced by floats, the others by None.

  Of floats, an iterator is taken as far as it is needed.
  """
  floats = iter(floats)
  return nmap.Pack([
      next(floats) if Differentiable(x) else None for x in nmap.Flatten()
  ])


def Replace(nmap, chosen, tensors):
  """nmap with the chosen ones (a list of bool) replaced by tensors."""
  tensors = iter(tensors)
  return nmap.Pack([
      next(tensors) if c else x for c, x in zip(chosen, nmap.Flatten())
  ])


class Stage:
  """One cell on one device.

  Attributes:
    name: What errors call it.
    device: The TensorFlow device name.
    theta: NestedMap of tensors, the weights.
    state0: NestedMap of tensors, the initial recurrent state. Empty where the
      cell keeps no state; the cell's state1 is then merely its output.
    cell_grad: None, or the cell's own gradient function.
    cell_out: state1 -> the next stage's inputs.
    cell_out_grad: The gradient of the next stage's inputs -> that of state1.
    accumulators: The layer whose accumulators travel round the loop, or None.
    inputs_spec, state1_spec, extras_spec, out_spec: NestedMaps of TensorSpec,
      what Trace found; without the time dimension.
    captures: Differentiable tensors from outside that the cell uses.
    read, trainable: For each tensor of theta.Flatten(), whether the cell takes
      it, and whether it may have a gradient.
    selection: A kept_results.Selection.
    returned, trained, passed_back: For each tensor of state1.Flatten(), of theta
      and of the inputs, whether it has a gradient. Once FindGradients was called.
  """

  def __init__(self, name, device, cell_fn, theta, state0, cell_grad=None,
               cell_out=None, cell_out_grad=None, accumulators=None):
    self.name = name
    self.device = device
    self.theta = theta
    self.state0 = state0
    self.cell_grad = cell_grad
    self.cell_out = cell_out or (lambda x: x)
    self.cell_out_grad = cell_out_grad or (lambda x: x)
    self.accumulators = accumulators
    # Whether the next stage's inputs are the states themselves.
    self.gives_states = cell_out is None
    self._cell_fn = cell_fn

  def Call(self, theta, state0, inputs, seed, global_step=None):
    """Runs the cell once.

    Args:
      theta: NestedMap of weights.
      state0: NestedMap, the state before.
      inputs: NestedMap, one micro-batch's inputs.
      seed: int64 scalar. Lingvo's step seed for the cell's random ops.
      global_step: Integer scalar that the cell sees as the global step, or None
        to leave that alone.

    Returns:
      (state1, extras), two NestedMaps.
    """
    with contextlib.ExitStack() as scopes:
      # An assertion is a string op on the host, and each cell has dozens.
      scopes.enter_context(py_utils.RemoveAssertContext(remove=True))
      if not self._CountsFlops():
        scopes.enter_context(lingvo_compat.FlopsUncounted())
      scopes.enter_context(_StepSeed(seed))
      if global_step is not None:
        scopes.enter_context(py_utils.GlobalStepContext(global_step))
      state1, extras = self._cell_fn(theta, state0, inputs)
    return state1, extras

  def Trace(self, inputs_spec):
    """Finds what the cell gives for such inputs.

    Args:
      inputs_spec: NestedMap of TensorSpec.

    Raises:
      ValueError: the cell holds a stateful random op, assigns a variable,
        changes its state's shape or dtype, reads a trainable variable that
        isn't in its theta, or has a cell_grad and uses tensors from outside.
    """
    graph = lingvo_compat.ScratchGraph('trace_' + self.name.replace('/', '_'))
    with graph.as_default(), self.AccumulatorsDisabled():
      def Stand(x):
        return tf.placeholder(x.dtype, x.shape)
      theta, state0, inputs = [
          m.Transform(Stand) for m in (self.theta, self.state0, inputs_spec)
      ]
      with kept_results.Products() as products:
        state1, extras = self.Call(
            theta, state0, inputs, tf.constant(0, tf.int64),
            tf.placeholder(tf.int64, []))
      self.selection = kept_results.Selection(
          self.name, products, state0.Flatten() + inputs.Flatten())
      self._traced = theta, inputs, state1
      self._FindWeights(theta.Flatten(), state1.Flatten())
      self.inputs_spec = inputs_spec
      self.state1_spec = Specs(state1)
      self.extras_spec = Specs(extras)
      self.out_spec = Specs(self.cell_out(state1))
    self._RefuseStatefulOps(graph)
    self._RefuseOtherState()
    self.captures = self._Captures([outer for outer, _ in graph.captures])

  def _FindWeights(self, theta, state1):
    """Sets `read` and `trainable`; a cell_grad may want any weight."""
    self.trainable = [Differentiable(x) for x in theta]
    self.read = [True] * len(theta)
    if self.cell_grad is None:
      sources = graph_walk.Sources(state1, differentiable=True)
      self.trainable = [Differentiable(x) and id(x) in sources for x in theta]
      given = set(map(id, state1))
      self.read = [bool(x.consumers()) or id(x) in given for x in theta]

  def Weights(self, theta):
    """Copies, made here, of the weights that the cell reads.

    The others, such as the moving averages of a batch normalisation in training,
    stay as they are, so that a loop that is built doesn't carry them.

    Args:
      theta: NestedMap like `theta`.
    """
    return Replace(
        theta, self.read,
        [tf.identity(x) for x, r in zip(theta.Flatten(), self.read) if r])

  def FindGradients(self, wanted):
    """Finds which tensors of a traced cell have a gradient.

    Args:
      wanted: The keys of state1 whose gradient may come from the next stage, a
        set; None for all.

    Returns:
      The keys of the inputs that have one, a set.
    """
    theta, inputs, state1 = self._traced
    self.returned = [
        Differentiable(x) and (wanted is None or key in wanted)
        for key, x in state1.FlattenItems()
    ]
    sources = graph_walk.Sources(
        [x for x, r in zip(state1.Flatten(), self.returned) if r],
        differentiable=True)
    self.trained, self.passed_back = [
        [Differentiable(x) and id(x) in sources for x in m.Flatten()]
        for m in (theta, inputs)
    ]
    return {key for (key, _), p in zip(inputs.FlattenItems(), self.passed_back)
            if p}

  @contextlib.contextmanager
  def AccumulatorsDisabled(self):
    """Calls inside neither see nor change the accumulators."""
    if self.accumulators is None:
      yield
      return
    self.accumulators.accumulators.Transform(lambda x: x.Disable())
    try:
      yield
    finally:
      self.accumulators.accumulators.Transform(lambda x: x.Enable())

  @property
  def carries_state(self):
    """Whether a state travels from one micro-batch to the next."""
    return bool(self.state0.Flatten())

  def _CountsFlops(self):
    """Whether somebody called Lingvo's computation_cost.Prepare on the layer."""
    if self.accumulators is None:
      return False
    return any(key.rpartition('.')[2] in computation_cost.COST_METRICS
               for key, _ in self.accumulators.accumulators.FlattenItems())

  def _RefuseStatefulOps(self, graph):
    for name, op_type in called_functions.AllOperators(graph):
      if op_type in _RANDOM:
        raise ValueError(
            f'{self.name}: op {name!r} is the stateful random op {op_type}. '
            'It would draw other numbers when the forward pass is recomputed '
            'for the gradient. Use a stateless one (tf.random.stateless_uniform '
            'or the like), seeded by py_utils.GenerateStepSeedPair.')
      if op_type in _ASSIGNMENTS:
        raise ValueError(
            f'{self.name}: op {name!r} ({op_type}) changes a variable. '
            'Inside of a pipeline it would do so once a micro-batch and once '
            'more for each recomputation. Collect what the update needs in an '
            "accumulator (BaseLayer.RegisterAccumulator) and assign in the "
            "layer's PostTrainingStepUpdate.")

  def _RefuseOtherState(self):
    if not self.carries_state:
      return
    before = dict(Specs(self.state0).FlattenItems())
    after = dict(self.state1_spec.FlattenItems())
    for key in sorted(set(before) | set(after)):
      a, b = before.get(key), after.get(key)
      if a is None or b is None or a.dtype != b.dtype or (
          not a.shape.is_compatible_with(b.shape)):
        raise ValueError(
            f'{self.name}: the state {key!r} is {_Show(a)} before the cell and '
            f'{_Show(b)} after it. A state keeps its shape and dtype from one '
            'micro-batch to the next.')

  def _Captures(self, outer):
    """The captured tensors that want a gradient."""
    trainable = {id(graph_walk.Handle(v)): v for v in tf.trainable_variables()}
    for x in outer:
      if id(x) in trainable:
        raise ValueError(
            f'{self.name}: the cell reads the variable '
            f'{trainable[id(x)].name!r} itself. Its gradient would be lost: '
            "take it from the cell's theta.")
    captures = [x for x in outer if Differentiable(x)]
    if captures and self.cell_grad is not None:
      raise ValueError(
          f'{self.name}: the cell uses tensors from outside '
          f'({", ".join(x.name for x in captures)}) and has its own cell_grad, '
          'which gives no gradient for them. Pass them in theta.')
    return captures


def _Show(spec):
  if spec is None:
    return 'missing'
  return f'{tf.as_dtype(spec.dtype).name}{spec.shape}'


@contextlib.contextmanager
def _StepSeed(seed):
  """Lingvo's step seed is `seed` inside, and what it was after."""
  before = CurrentStepSeed()
  py_utils.ResetStepSeed(seed)
  try:
    yield
  finally:
    py_utils.ResetStepSeed(before)


def CurrentStepSeed():
  """Lingvo's step seed, int64 scalar, in this graph.

  Lingvo files step seeds by the id of the graph, so a new graph can be handed
  the seed of a dead one. Such a seed is reset.
  """
  seed = py_utils.GetStepSeed()
  if seed.graph is not tf.get_default_graph():
    py_utils.ResetStepSeed()
    seed = py_utils.GetStepSeed()
  return seed
