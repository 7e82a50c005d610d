"""StackedRecurrent against the same cells one after another, on K devices."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import py_utils
import numpy as np
import pytest

from lingvo_gpipe import stacked_recurrent
from tests import toy_layers

NestedMap = py_utils.NestedMap
_TIME, _BATCH, _DIM = 5, 3, 4


def _Lstm(theta, state0, inputs):
  """A cell with two states, and a counter of its own dtype."""
  xh = tf.concat([inputs.x, state0.h], 1)
  i, f, o, g = tf.split(tf.matmul(xh, theta.w) + theta.b, 4, axis=1)
  c = tf.sigmoid(f) * state0.c + tf.sigmoid(i) * tf.tanh(g)
  h = tf.sigmoid(o) * tf.tanh(c)
  return NestedMap(h=h, c=c, steps=state0.steps + 1), NestedMap()


def _LstmOut(state1):
  return NestedMap(x=state1.h)


def _LstmOutGrad(dout):
  return NestedMap(h=dout.x)


def _LstmStack(k):
  rng = np.random.RandomState(k)
  def Weights(*shape):
    return tf.constant(rng.normal(0, .5, shape), tf.float32)
  thetas = [
      NestedMap(w=Weights(2 * _DIM, 4 * _DIM), b=Weights(4 * _DIM))
      for _ in range(k)
  ]
  states = [
      NestedMap(h=Weights(_BATCH, _DIM), c=Weights(_BATCH, _DIM),
                steps=tf.constant(2**40, tf.int64)) for _ in range(k)
  ]
  return thetas, states, NestedMap(x=Weights(_TIME, _BATCH, _DIM))


def _OneAfterAnother(cell, cell_out, thetas, states, inputs):
  """The reference: each layer over all time steps, then the next."""
  finals = []
  for theta, state in zip(thetas, states):
    outputs = []
    for t in range(inputs.Flatten()[0].shape[0]):
      state, _ = cell(theta, state, inputs.Transform(lambda x, t=t: x[t]))
      outputs.append(cell_out(state))
    finals.append(state)
    inputs = outputs[0].Pack(
        [tf.stack(x) for x in zip(*[o.Flatten() for o in outputs])])
  return inputs, finals


def _Floats(nmaps):
  return [x for m in nmaps for x in m.Flatten() if x.dtype.is_floating]


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
@pytest.mark.parametrize('k', [1, 2, 3])
def testLstmEqualsLayersOneAfterAnother(devices, k, recompute):
  graph = tf.Graph()
  with graph.as_default():
    thetas, states, inputs = _LstmStack(k)
    results = []
    for run in (
        lambda: stacked_recurrent.StackedRecurrent(
            devices.Names(k), _Lstm, None, _LstmOut, _LstmOutGrad, thetas,
            states, inputs, recompute=recompute),
        lambda: _OneAfterAnother(_Lstm, _LstmOut, thetas, states, inputs)):
      outputs, finals = run()
      loss = tf.reduce_sum(tf.square(outputs.x)) + tf.add_n(
          [tf.reduce_sum(x**3) for x in _Floats(finals)])
      grads = tf.gradients(loss, _Floats(thetas + states + [inputs]))
      results.append([outputs.x, loss, [f.steps for f in finals], grads])
  ours, expected = devices.Run(graph, k, results)
  assert ours[2] == [2**40 + _TIME] * k
  tf.nest.map_structure(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours,
      expected)


def _Elman(theta, state0, inputs):
  """A cell that gives its gradient an extra and skips padded steps."""
  h = tf.tanh(tf.matmul(inputs.x, theta.w) + state0.h)
  h = (1 - inputs.padding) * h + inputs.padding * state0.h
  return NestedMap(h=h, padding=inputs.padding), NestedMap(h=h)


def _ElmanGrad(theta, state0, inputs, extras, dstate1):
  """By hand, and not from TensorFlow, so that the test can tell it was used."""
  del state0
  dh = (1 - inputs.padding) * dstate1.h
  dz = dh * (1 - tf.square(extras.h))
  return (NestedMap(w=tf.matmul(inputs.x, dz, transpose_a=True)),
          NestedMap(h=dz + inputs.padding * dstate1.h,
                    padding=tf.zeros_like(inputs.padding)),
          NestedMap(x=tf.matmul(dz, theta.w, transpose_b=True),
                    padding=tf.zeros_like(inputs.padding)), None)


def _ElmanOut(state1):
  return NestedMap(x=state1.h, padding=state1.padding)


def _ElmanOutGrad(dout):
  return NestedMap(h=dout.x, padding=dout.padding)


@pytest.mark.parametrize('cell_grad', [None, _ElmanGrad])
def testCustomCellGradientsAndPadding(devices, cell_grad):
  k = 2
  graph = tf.Graph()
  with graph.as_default():
    rng = np.random.RandomState(3)
    def Values(*shape):
      return tf.constant(rng.uniform(-.5, .5, shape))
    thetas = [NestedMap(w=Values(_DIM, _DIM)) for _ in range(k)]
    states = [
        NestedMap(h=Values(_BATCH, _DIM), padding=tf.zeros([_BATCH, 1],
                                                           tf.float64))
        for _ in range(k)
    ]
    padding = np.zeros((_TIME, _BATCH, 1))
    padding[0] = padding[-1] = 1  # Left out of the loop.
    padding[2, 1] = 1  # Not, since other rows have data.
    inputs = NestedMap(x=Values(_TIME, _BATCH, _DIM), padding=tf.constant(padding))
    results = []
    for run in (
        lambda: stacked_recurrent.StackedRecurrent(
            devices.Names(k), _Elman, cell_grad, _ElmanOut, _ElmanOutGrad,
            thetas, states, inputs),
        lambda: _OneAfterAnother(_Elman, _ElmanOut, thetas, states, inputs)):
      outputs, _ = run()
      y = outputs.x * (1 - inputs.padding)
      xs = [t.w for t in thetas] + [s.h for s in states] + [inputs.x]
      results.append([y, tf.gradients(tf.reduce_sum(tf.square(y)), xs)])
  ours, expected = devices.Run(graph, k, results)
  tf.nest.map_structure(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9), ours, expected)


def testWeightWithoutEffectHasZeroGradient(devices):

  def Poly(theta, state0, inputs):
    return NestedMap(s=state0.s * theta.x + inputs.c), NestedMap()

  def Pass(theta, state0, inputs):
    del theta, state0
    return NestedMap(s=inputs.s), NestedMap()

  graph = tf.Graph()
  with graph.as_default():
    weights = [tf.constant(x) for x in (2., 0., 0.)]
    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(3), [Poly, Pass, Pass], None, lambda x: x, lambda x: x,
        [NestedMap(x=w) for w in weights],
        [NestedMap(s=tf.constant(0.))] * 3,
        NestedMap(c=tf.constant([1., 2., 1., 0.]),
                  padding=tf.constant([0., 0., 0., 1.])))
    grads = tf.gradients(tf.reduce_sum(outputs.s), weights)
  values, d_weights = devices.Run(graph, 3, [outputs.s, grads])
  np.testing.assert_allclose(values, [1., 4., 9., 0.])
  np.testing.assert_allclose(d_weights, [7., 0., 0.])


def _InLoops(devices, recompute, **unread):
  """How many operators the loops have with weights that no cell reads."""

  def Double(theta, state0, inputs):
    del state0
    return NestedMap(x=inputs.x * theta.w), NestedMap()

  with tf.Graph().as_default() as graph:
    thetas = [NestedMap(w=tf.constant(2.), **unread) for _ in range(2)]
    thetas = [theta.Transform(tf.convert_to_tensor) for theta in thetas]
    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(2), [Double, Double], None, lambda x: x, lambda x: x, thetas,
        [NestedMap(x=tf.constant(0.))] * 2, NestedMap(x=tf.constant([1., 2.])),
        recompute=recompute)
    tf.gradients(outputs.x, [theta.w for theta in thetas])
    return sum(op.type in ('Enter', 'NextIteration') for op in graph.get_operations())


@pytest.mark.parametrize('recompute', ['always', 'never'])
def testLoopsCarryNoWeightThatTheCellDoesNotRead(devices, recompute):
  assert _InLoops(devices, recompute) == _InLoops(
      devices, recompute, moving_mean=1., steps=3)


class _Counting(base_layer.BaseLayer):
  """A layer whose cell counts its calls, twice for one recomputed by mistake."""

  def __init__(self, params):
    super().__init__(params)
    self.RegisterAccumulator('calls', toy_layers.Calls())

  def Cell(self, theta, state0, inputs):
    del state0
    calls = self.accumulators.calls
    calls.SetValue(calls.GetValue() + 1.)
    return NestedMap(x=inputs.x * theta.w), NestedMap()


def testAccumulatorsCountOnlyTheForwardPass(devices):
  graph = tf.Graph()
  with graph.as_default():
    counters = [
        _Counting.Params().Set(name=f'counter_{i}').Instantiate()
        for i in range(2)
    ]
    counters[1].accumulators.calls.SetValue(tf.constant(10.))
    w = tf.constant(2.)
    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(2), [c.Cell for c in counters], None, lambda x: x,
        lambda x: x, [NestedMap(w=w)] * 2, [NestedMap(), NestedMap()],
        NestedMap(x=tf.ones([_TIME, _BATCH])), accumulator_layers=counters)
    grad = tf.gradients(tf.reduce_sum(outputs.x), w)
    calls = [c.accumulators.calls.GetValue() for c in counters]
  calls, grad = devices.Run(graph, 2, [calls, grad])
  assert calls == [_TIME, 10 + _TIME]
  # d/dw of w^2 summed over ones; the two stages share w, so both parts add up.
  assert grad == [pytest.approx(2 * 2. * _TIME * _BATCH)]


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
def testCapturedTensorHasGradientFromEveryStage(devices, recompute):
  graph = tf.Graph()
  with graph.as_default():
    outside = tf.constant(3.)

    def Cell(theta, state0, inputs):
      del theta, state0
      return NestedMap(x=inputs.x * outside), NestedMap()

    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(2), Cell, None, lambda x: x, lambda x: x,
        [NestedMap()] * 2, [NestedMap()] * 2, NestedMap(x=tf.ones([_TIME])),
        recompute=recompute)
    grad = tf.gradients(tf.reduce_sum(outputs.x), outside)
  assert devices.Run(graph, 2, grad) == [pytest.approx(2 * 3. * _TIME)]


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
@pytest.mark.parametrize('behind', ['weight', 'capture'])
def testCapturedTensorBehindAnother(devices, behind, recompute):
  """Each part of its gradient counts once."""
  graph = tf.Graph()
  with graph.as_default():
    outside = tf.constant(3.)
    double = 2. * outside
    theta = NestedMap(w=double) if behind == 'weight' else NestedMap()

    def Cell(theta, state0, inputs):
      del state0
      return NestedMap(x=inputs.x * theta.get('w', double) * outside), NestedMap()

    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(1), Cell, None, None, None, [theta], [NestedMap()],
        NestedMap(x=tf.ones([_TIME])), recompute=recompute)
    grad = tf.gradients(tf.reduce_sum(outputs.x), outside)
  assert devices.Run(graph, 1, grad) == [pytest.approx(2 * 2 * 3. * _TIME)]


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
def testWhoGathersFromAnOutputGivesSparseGradients(devices, recompute):
  graph = tf.Graph()
  with graph.as_default():
    w, state = tf.constant(2.), tf.constant([[1.], [2.], [3.]])

    def Cell(theta, state0, inputs):
      m = tf.gather(state0.m, [2, 0, 1])  # As a beam search reorders its rows.
      return NestedMap(x=inputs.x * theta.w + m, m=m), NestedMap()

    results = []
    for run in (
        lambda inputs: stacked_recurrent.StackedRecurrent(
            devices.Names(1), Cell, None, None, None, [NestedMap(w=w)],
            [NestedMap(x=tf.zeros([3, 1]), m=state)], inputs, recompute=recompute),
        lambda inputs: _OneAfterAnother(
            Cell, lambda x: x, [NestedMap(w=w)], [NestedMap(m=state)], inputs)):
      outputs, finals = run(NestedMap(x=tf.ones([_TIME, 3, 1])))
      loss = tf.reduce_sum(tf.gather(outputs.x, [_TIME - 1, 0])) + tf.reduce_sum(
          tf.gather(finals[0].m, [1]))
      results.append([loss] + [
          tf.convert_to_tensor(d) for d in tf.gradients(loss, [w, state])])
  ours, expected = devices.Run(graph, 1, results)
  for a, b in zip(ours, expected):
    np.testing.assert_allclose(a, b, rtol=1e-5)


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
def testWhatTravelsMayDifferInShapeByTimeStep(devices, recompute):
  def Trim(theta, state0, inputs):
    del state0
    return NestedMap(x=inputs.x[:, :tf.cast(inputs.x[0, 0], tf.int32)] * theta.w), NestedMap()

  def Sum(theta, state0, inputs):
    del state0
    return NestedMap(x=tf.reduce_sum(inputs.x, 1) * theta.w), NestedMap()

  graph = tf.Graph()
  with graph.as_default():
    ws = [tf.constant(2.), tf.constant(3.)]
    x = tf.constant([[[2., 1, 1, 1]] * 2, [[3., 1, 1, 1]] * 2])
    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(2), [Trim, Sum], None, None, None, [NestedMap(w=w) for w in ws],
        [NestedMap()] * 2, NestedMap(x=x), recompute=recompute)
    grads = tf.gradients(tf.reduce_sum(outputs.x), ws)
  y, grads = devices.Run(graph, 2, [outputs.x, grads])
  np.testing.assert_allclose(y, [[18., 18.], [30., 30.]])
  np.testing.assert_allclose(grads, [48., 32.])


def testPaddingAndABatchThatIsNotKnown(devices):
  graph = tf.Graph()
  with graph.as_default():
    x = tf.placeholder(tf.float32, [4, None, 2])
    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(1), lambda t, s, i: (NestedMap(x=i.x * t.w), NestedMap()),
        None, None, None, [NestedMap(w=tf.constant(2.))], [NestedMap()],
        NestedMap(x=x, padding=tf.constant([[1.], [0.], [0.], [1.]])))
  with devices.Session(graph, 1) as session:
    y = session.run(outputs.x, {x: np.ones([4, 3, 2])})
  np.testing.assert_array_equal(y, np.float32([0, 2, 2, 0])[:, None, None] * np.ones([4, 3, 2]))


def testTwoLossesEachHaveTheirGradient(devices):
  graph = tf.Graph()
  with graph.as_default():
    thetas, states, inputs = _LstmStack(2)
    outputs, _ = stacked_recurrent.StackedRecurrent(
        devices.Names(2), _Lstm, None, _LstmOut, _LstmOutGrad, thetas, states,
        inputs)
    loss = tf.reduce_sum(outputs.x)
    once, thrice = [tf.gradients(f * loss, thetas[0].w)[0] for f in (1., 3.)]
  once, thrice = devices.Run(graph, 2, [once, thrice])
  np.testing.assert_allclose(3 * once, thrice, rtol=1e-5)


def testInsideAFunction(devices):
  graph = tf.Graph()
  with graph.as_default():
    thetas, states, inputs = _LstmStack(2)

    @tf.function(autograph=False)
    def Gradients(thetas, x):
      outputs, _ = stacked_recurrent.StackedRecurrent(
          devices.Names(2), _Lstm, None, _LstmOut, _LstmOutGrad, thetas, states,
          NestedMap(x=x))
      return tf.gradients(tf.reduce_sum(outputs.x), _Floats(thetas) + [x])

    outputs, _ = _OneAfterAnother(_Lstm, _LstmOut, thetas, states, inputs)
    expected = tf.gradients(
        tf.reduce_sum(outputs.x), _Floats(thetas + [inputs]))
    ours = Gradients(thetas, inputs.x)
  ours, expected = devices.Run(graph, 2, [ours, expected])
  for a, b in zip(ours, expected):
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _Stack(devices, cell, state0=None, **kwargs):
  state0 = state0 or NestedMap()
  args = dict(
      devices=devices.Names(2), cell_fns=cell, cell_grads=None,
      cell_outs=lambda x: x, cell_out_grads=lambda x: x,
      thetas=[NestedMap(w=tf.constant(1.))] * 2, init_states=[state0] * 2,
      inputs=NestedMap(x=tf.ones([_TIME, 2])))
  args.update(kwargs)
  return stacked_recurrent.StackedRecurrent(**args)


def _Pass(theta, state0, inputs):
  del theta, state0
  return inputs, NestedMap()


def _Refused(devices, error, match, cell=_Pass, **kwargs):
  with tf.Graph().as_default(), pytest.raises(error, match=match):
    _Stack(devices, cell, **{k: v() if callable(v) else v
                             for k, v in kwargs.items()})


class TestRefusals:

  def testStatefulRandomOp(self, devices):
    _Refused(
        devices, ValueError, 'layer 0: .*RandomUniform.*GenerateStepSeedPair',
        lambda t, s, x: (NestedMap(x=tf.nn.dropout(x.x, rate=.5)), NestedMap()))

  @pytest.mark.parametrize('wrap', ['cond', 'map', 'function'])
  def testStatefulRandomOpInAFunction(self, devices, wrap):
    def Drop(x):
      return tf.nn.dropout(x, rate=.5)
    call = {
        'cond': lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: Drop(x), lambda: x),
        'map': lambda x: tf.map_fn(Drop, x),
        'function': tf.function(Drop, autograph=False),
    }[wrap]
    _Refused(
        devices, ValueError, 'layer 0: .*RandomUniform.*GenerateStepSeedPair',
        lambda t, s, x: (NestedMap(x=call(x.x)), NestedMap()))

  def testRandomGenerator(self, devices):
    with tf.Graph().as_default():
      generator = tf.random.Generator.from_seed(1)
      with pytest.raises(ValueError, match='layer 0: .*RngReadAndSkip'):
        _Stack(devices, lambda t, s, x: (NestedMap(x=x.x + generator.normal([2])), NestedMap()))

  def testSampledSoftmax(self, devices):
    def Cell(theta, state0, inputs):
      del theta, state0
      sampled, _, _ = tf.random.log_uniform_candidate_sampler(
          tf.zeros([1, 1], tf.int64), 1, 4, True, 10)
      return NestedMap(x=inputs.x * tf.cast(sampled[0], tf.float32)), NestedMap()
    _Refused(devices, ValueError, 'layer 0: .*LogUniformCandidateSampler', Cell)

  def testOneMapForAllLayersOfWhichThereIsNone(self, devices):
    _Refused(devices, TypeError, r'thetas\[0\] must be a NestedMap, but is int', thetas=1)

  def testStateThatChangesItsShape(self, devices):
    _Refused(
        devices, ValueError,
        r"layer 0: the state 'x' is float32\(3,\) before .* float32\(2,\) after",
        state0=lambda: NestedMap(x=tf.zeros([3])))

  def testAssignmentToAVariable(self, devices):
    with tf.Graph().as_default():
      v = tf.get_variable('v', [], use_resource=True, trainable=False)

      def Cell(theta, state0, inputs):
        del theta, state0
        with tf.control_dependencies([v.assign_add(1.)]):
          return inputs.Transform(tf.identity), NestedMap()

      with pytest.raises(ValueError, match='layer 0: .*AssignAddVariableOp'):
        _Stack(devices, Cell)

  def testTrainableVariableOutsideOfTheta(self, devices):
    with tf.Graph().as_default():
      v = tf.get_variable('v', [], use_resource=True)
      with pytest.raises(ValueError, match="layer 0: .* variable 'v:0' itself"):
        _Stack(devices,
               lambda t, s, x: (NestedMap(x=x.x * v), NestedMap()))

  def testCaptureWithACustomGradient(self, devices):
    with tf.Graph().as_default():
      outside = tf.constant(2.)
      with pytest.raises(ValueError, match='layer 0: .*Pass them in theta'):
        _Stack(devices,
               lambda t, s, x: (NestedMap(x=x.x * outside), NestedMap()),
               cell_grads=lambda *args: args)

  def testUnknownRecomputeMode(self, devices):
    _Refused(devices, ValueError, "recompute is 'twice'.*always, except_last, selective, never",
             recompute='twice')

  def testListsOfDifferentLengths(self, devices):
    _Refused(devices, ValueError, 'thetas has 1 entries for 2 devices',
             thetas=lambda: [NestedMap()])

  def testInputsThatAreNotAMap(self, devices):
    _Refused(devices, TypeError, 'inputs must be a NestedMap',
             inputs=lambda: tf.ones([2]))


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
