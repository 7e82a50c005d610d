"""PipeliningLayer against the same layers in sequence, on K devices."""

import sys

from absl.testing import flagsaver
import lingvo.compat as tf
from lingvo.core import attention
from lingvo.core import layers
from lingvo.core import py_utils
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import stacked_recurrent
from tests import toy_layers

_BATCH, _DIM = 8, 4


def _Params(num_stages=1, num_micro_batches=4, keep_prob=1., n=4, **kwargs):
  return lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', num_stages=num_stages,
      num_micro_batches=num_micro_batches,
      layers=[
          toy_layers.Dense.Params().Set(
              name=f'dense_{i}', dim=_DIM, keep_prob=keep_prob)
          for i in range(n)
      ], **kwargs)


def _Inputs(seed=0, dtype=np.float32):
  return tf.constant(np.random.RandomState(seed).randn(_BATCH, _DIM), dtype)


def _Evaluate(devices, k, params, args=None, step=0):
  """Outputs, loss, gradients of the inputs and (by name) of the variables."""
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    global_step = py_utils.GetOrCreateGlobalStepVar()
    net = params.Instantiate()
    args = args() if args else (_Inputs(),)
    with tf.control_dependencies([global_step.assign(step)]):
      outputs = net.FPropDefaultTheta(*map(tf.identity, args))
    floats = [x for x in tf.nest.flatten(outputs) if x.dtype.is_floating]
    loss = tf.add_n(
        [tf.cast(tf.reduce_sum(tf.square(x)), tf.float32) for x in floats])
    variables = tf.trainable_variables()
    xs = [x for x in args if x.dtype.is_floating] + variables
    grads = tf.gradients(loss, xs)
    names = [x.name for x in xs]
    fetches = [outputs, loss, dict(zip(names, grads))]
  return devices.Run(graph, k, fetches)


def _AssertSame(ours, expected):
  tf.nest.map_structure(
      lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), ours,
      expected)


@pytest.mark.parametrize('k,m,recompute', [
    (k, m, r)
    for i, (k, m) in enumerate([(1, 1), (1, 4), (2, 1), (2, 8), (3, 4), (4, 2)])
    for j, r in enumerate(stacked_recurrent.RECOMPUTE_MODES) if (i + j) % 2
])
def testEqualsLayersInSequence(devices, k, m, recompute):
  sequence = lingvo_gpipe.FeatureExtractionLayer.Params().Set(
      name='sequence', sub=_Params().layers, variables_in_parent_scope=True)
  expected = _Evaluate(devices, 1, sequence)
  ours = _Evaluate(devices, k, _Params(k, m, recompute=recompute))
  _AssertSame(ours, expected)


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
def testDropoutMasksDoNotDependOnTheStages(devices, recompute):
  one, two, four = [
      _Evaluate(devices, k, _Params(k, keep_prob=.5, recompute=recompute))
      for k in (1, 2, 4)
  ]
  _AssertSame(two, one)
  _AssertSame(four, one)


def testDropoutMasksDifferByMicroBatchStepAndLayer(devices):

  def Zeros(step):
    outputs, _, _ = _Evaluate(
        devices, 2, _Params(2, 4, keep_prob=.5, n=2), step=step)
    return outputs == 0

  first, second = Zeros(0), Zeros(2**40)
  assert (first != second).any()
  micro_batches = first.reshape(4, 2, _DIM)
  assert len({m.tobytes() for m in micro_batches}) > 1


def testDropoutMasksOfCellsDiffer(devices):
  """Of plain layers, and of sublayers that have the same name."""
  drop = layers.DeterministicDropoutLayer.Params().Set(name='drop', keep_prob=.5)
  stage = lingvo_gpipe.FeatureExtractionLayer.Params().Set(sub=[drop])
  for cell in (drop, stage):
    cells = [cell.Copy().Set(name=name) for name in ('a', 'b')]
    outputs = []
    for m in (1, 4):
      params = lingvo_gpipe.PipeliningLayer.Params().Set(
          name='p', num_micro_batches=m, cell_tpl=cells)
      outputs.append(_Evaluate(devices, 2, params, args=lambda: (tf.ones([_BATCH, 128]),))[0])
      # A quarter is kept by both masks; half, were they the same.
      assert .2 < (outputs[-1] != 0).mean() < .3


def testWhatComesAfterHasTheSameSeeds(devices):
  seeds = []
  for k, m in ((1, 1), (2, 1), (2, 4)):
    graph = tf.Graph()
    with graph.as_default(), devices.Cluster(k):
      py_utils.GetOrCreateGlobalStepVar()
      _Params(k, m).Instantiate().FPropDefaultTheta(_Inputs())
      seeds.append(devices.Run(graph, k, py_utils.GetStepSeed()))
  assert len(set(seeds)) == 1


def testRecomputationUsesTheSameMask(devices):
  # With w of a linear layer as the only factor, the gradient shows the mask.
  outputs, _, grads = _Evaluate(devices, 2, _Params(2, keep_prob=.5, n=2))
  again = _Evaluate(
      devices, 2, _Params(2, keep_prob=.5, n=2, recompute='never'))
  np.testing.assert_array_equal(outputs, again[0])
  _AssertSame(grads, again[2])


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
def testLayersSeeTheGlobalStepAndSeedsThatDiffer(devices, recompute):

  class Numbers(toy_layers.Dense):
    """Gives the seeds of its random ops, too, and changes by the global step."""
    FPropMeta = toy_layers.base_layer.BaseLayer.FPropMeta  # None of its own.

    def FProp(self, theta, x):
      factor = tf.cast(py_utils.GetGlobalStep() % 100, tf.float32)
      seeds = py_utils.GenerateStepSeedPair(self.params)
      return factor * super().FProp(theta, x), tf.tile(seeds[None], [tf.shape(x)[0], 1])

  params = _Params(1, 4, recompute=recompute)
  params.layers = [Numbers.Params().Set(name='numbers', dim=_DIM)]
  step = 2**53 + 3  # float64 can't hold it.
  (outputs, seeds), _, grads = _Evaluate(devices, 1, params, step=step)
  assert seeds.dtype == np.int64 and (seeds[:, 0] == step).all()
  micro_batches = seeds[:, 1].reshape(4, 2)
  assert (micro_batches[:, 0] == micro_batches[:, 1]).all()
  # Further apart than the seeds of names, so that layers' don't meet either.
  assert (np.diff(micro_batches[:, 0]) > 2**32).all()
  expected = _Evaluate(devices, 1, params.Copy().Set(num_micro_batches=1), step=step)
  _AssertSame([outputs, grads], [expected[0][0], expected[2]])


def testEachTensorKeepsItsDtype(devices):
  def Args():
    return (_Inputs(), tf.range(_BATCH), _Inputs(1, np.float16),
            tf.range(_BATCH) > 3)
  outputs, _, grads = _Evaluate(devices, 3, _Params(3), args=Args)
  expected = _Evaluate(devices, 1, _Params(1, 1), args=Args)
  assert [x.dtype for x in outputs] == [np.float32, np.int32, np.float16, bool]
  for ours, theirs in zip(outputs[1:], expected[0][1:]):
    np.testing.assert_array_equal(ours, theirs)
  _AssertSame([outputs[0], grads], [expected[0][0], expected[2]])


def testOneInputThatTellsTheBatchSize(devices):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(2):
    x = _Inputs()
    unknown = tf.placeholder_with_default(x, [None, _DIM])
    net = _Params(2).Instantiate()
    first, _ = net.FPropDefaultTheta(unknown, x)
    expected, _ = net.FPropDefaultTheta(x, x)
  np.testing.assert_array_equal(*devices.Run(graph, 2, [first, expected]))


def testNoneAmongTheInputs(devices):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(2):
    net = _Params(2).Instantiate()
    x, none, y = net.FPropDefaultTheta(_Inputs(), None, _Inputs(1))
    assert none is None
    expected = _Inputs(1)
  values = devices.Run(graph, 2, [x, y, expected])
  np.testing.assert_array_equal(values[1], values[2])


class _Transposed(toy_layers.Dense):
  """Dense on [dim, batch]."""

  def FProp(self, theta, x):
    return tf.transpose(super().FProp(theta, tf.transpose(x)))


def testBatchDimension(devices):
  def Params(k, m):
    params = _Params(k, m, batch_dim=1)
    params.layers = [
        _Transposed.Params().Set(name=f'layer_{i}', dim=_DIM) for i in range(2)
    ]
    return params
  args = lambda: (tf.transpose(_Inputs()),)
  ours = _Evaluate(devices, 2, Params(2, 4), args)
  expected = _Evaluate(devices, 1, Params(1, 1), args)
  _AssertSame(ours[:2], expected[:2])


def testVariableNamesDoNotDependOnTheStages(devices):

  def Names(k, make):
    with tf.Graph().as_default(), devices.Cluster(k):
      make(k).Instantiate()
      return [v.name for v in tf.global_variables()]

  def ByHand(k):
    subs = _Params().layers
    n = len(subs) // k
    return lingvo_gpipe.PipeliningLayer.Params().Set(
        name='pipeline', cell_tpl=[
            lingvo_gpipe.FeatureExtractionLayer.Params().Set(
                name=f'cell_{i}', sub=subs[i * n:(i + 1) * n])
            for i in range(k)
        ])

  for make in (_Params, ByHand):
    assert Names(1, make) == Names(2, make) == Names(4, make)
    assert Names(1, make)[0] == 'dense_0/w/var:0'


def testStageInfo(devices):
  with tf.Graph().as_default(), devices.Cluster(2):
    stages = _Params(2, n=3).Instantiate().stages
  assert [s.layers for s in stages] == [['dense_0'], ['dense_1', 'dense_2']]
  assert [s.device for s in stages] == devices.Names(2)
  assert [s.num_params for s in stages] == [20, 40]
  assert [s.cost_share for s in stages] == pytest.approx([1 / 3, 2 / 3])


def testEvaluationNeedsNoMicroBatches(devices):
  with tf.Graph().as_default() as graph, devices.Cluster(1, do_eval=True):
    net = _Params(2, num_micro_batches=3).Instantiate()  # 3 doesn't divide 8.
    outputs = net.FPropDefaultTheta(_Inputs())
  assert devices.Run(graph, 1, outputs).shape == (_BATCH, _DIM)


def testSeqLayerRunsOnItsDevices(devices):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(2):
    net = lingvo_gpipe.SeqLayer.Params().Set(
        name='seq',
        before_tpl=[toy_layers.Dense.Params().Set(name='before')],
        cell_tpl=[toy_layers.Dense.Params().Set(name=f'cell_{i}')
                  for i in range(2)]).Instantiate()
    outputs = net.FPropDefaultTheta(_Inputs())
  assert net.stage_devices == devices.Names(2)
  placed = devices.Placed(graph, 2, outputs)
  work = {
      d: [n.op for n in g.node].count('Softsign') for d, g in placed.items()
  }
  assert work == dict(zip(devices.Names(2), [2, 1]))


def testStatefulDropoutIsSwitched(devices):
  params = _Params(2, keep_prob=.5)
  for p in params.layers:
    p.dropout = layers.DropoutLayer.Params()
  _AssertSame(
      _Evaluate(devices, 2, params), _Evaluate(
          devices, 1, _Params(1, keep_prob=.5)))


def testAttentionDropoutIsSwitched(devices):
  del devices
  atten = attention.DotProductAttention.Params().Set(
      name='atten', source_dim=4, query_dim=4, hidden_dim=4,
      atten_dropout_prob=0.5, atten_dropout_deterministic=False)
  with tf.Graph().as_default():
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='p', layers=[atten]).Instantiate()
  assert net.children['d0'].children['atten'].params.atten_dropout_deterministic


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
@pytest.mark.parametrize('m', [3, 5, 16])
@pytest.mark.parametrize('batch_dim', [0, 1])
def testAnyBatchSize(devices, batch_dim, m, recompute):
  cls = _Transposed if batch_dim else toy_layers.Dense

  def Params(k, m):
    params = _Params(k, m, recompute=recompute, batch_dim=batch_dim,
                     pad_batch=True)
    for p in params.layers:
      p.cls = cls
    return params

  args = lambda: (tf.transpose(_Inputs()) if batch_dim else _Inputs(),)
  ours = _Evaluate(devices, 2, Params(2, m), args)
  expected = _Evaluate(devices, 1, Params(1, 1), args)
  _AssertSame(ours, expected)


def testTheLastSmallerBatchOfAnEpoch(devices):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(2):
    net = _Params(2, 4, pad_batch=True).Instantiate()
    x = tf.placeholder(tf.float32, [None, _DIM])
    y = net.FPropDefaultTheta(x)
    w = tf.trainable_variables()[0]
    grad = tf.gradients(tf.reduce_sum(y), w)[0]
    init = tf.global_variables_initializer()
  data = np.random.RandomState(0).randn(_BATCH, _DIM)
  with devices.Session(graph, 2) as session:
    session.run(init)
    whole = session.run(y, {x: data})
    for n in (1, 3, 5, 6, 8):
      part, _ = session.run([y, grad], {x: data[:n]})
      np.testing.assert_allclose(part, whole[:n], rtol=1e-5, atol=1e-6)
    first, rest, both = [
        session.run(grad, {x: d}) for d in (data[:3], data[3:], data)
    ]
  np.testing.assert_allclose(first + rest, both, rtol=1e-4, atol=1e-5)


class TestRefusals:

  @pytest.fixture(autouse=True)
  def _Graph(self, devices):
    with tf.Graph().as_default(), devices.Cluster(2):
      yield

  def _Refused(self, params, match, *args, error=ValueError):
    with pytest.raises(error, match=match):
      params.Instantiate().FPropDefaultTheta(*(args or (_Inputs(),)))

  def testMoreStagesThanLayers(self):
    self._Refused(_Params(5), 'pipeline: num_stages=5 is more than the 4 layers')

  @pytest.mark.parametrize('stages', [0, -1, 1.5])
  def testStagesThatAreNotAPositiveInteger(self, stages):
    self._Refused(_Params(stages), 'num_stages is .*positive integer')

  def testBatchThatDoesNotSplit(self):
    self._Refused(_Params(2, 3), 'batch of 8 .*num_micro_batches=3.* 2 and 4')

  def testMoreMicroBatchesThanExamples(self):
    self._Refused(_Params(2, 16), 'batch of 8 .*num_micro_batches=16.* are 8')

  def testUnknownBatchSize(self):
    x = tf.placeholder(tf.float32, [None, _DIM])
    self._Refused(_Params(2), 'batch size .* not known .*drop_remainder', x)

  @pytest.mark.parametrize('number', [0, None, 2.])
  def testMicroBatchesThatAreNotAPositiveInteger(self, number):
    self._Refused(_Params(2, number, pad_batch=True, input_shapes=[[_BATCH, _DIM]]),
                  'pipeline: num_micro_batches is .*positive integer')

  def testInputsOfDifferentSizes(self):
    self._Refused(_Params(2), "different sizes .*'s000': 8, 's001': 4", _Inputs(),
                  tf.zeros([4]))

  def testStatefulRandomOpNamesTheStage(self):

    class Noisy(toy_layers.Dense):

      def FProp(self, theta, x):
        return super().FProp(theta, x) + tf.random.normal([_DIM])

    params = _Params(2)
    params.layers[3].cls = Noisy
    self._Refused(
        params, r'pipeline, stage 1 \(d1\): .*dense_3.*RandomStandardNormal')

  def testTwoLayersOfOneName(self):
    cells = [toy_layers.Dense.Params().Set(name='same') for _ in range(2)]
    params = lingvo_gpipe.PipeliningLayer.Params().Set(name='p', cell_tpl=cells)
    self._Refused(params, "p: layers 0 and 1 are both named 'same'")

  def testLayersAndCells(self):
    params = _Params()
    params.cell_tpl = params.layers
    self._Refused(params, 'both `layers` .* and `cell_tpl`')

  def testNeitherLayersNorCells(self):
    self._Refused(lingvo_gpipe.PipeliningLayer.Params().Set(name='p'),
                  'p: cell_tpl is empty')

  def testNestedMapThatIsMissing(self):
    self._Refused(
        _Params(2, nested_map_fprop=True), 'one NestedMap must come in',
        error=TypeError)

  def _RefusedMeta(self, meta, match):
    params = _Params(2)
    cls = type('Liar', (toy_layers.Dense,), {'FPropMeta': classmethod(meta)})
    for p in params.layers:
      p.cls = cls
    self._Refused(params, match)

  def testOtherShapeThanTheMetadata(self):

    def Meta(cls, p, x):
      del cls, p
      return py_utils.NestedMap(flops=1, out_shapes=(x[:1],))

    self._RefusedMeta(Meta, r'd0: output s000 of FProp is \(2, 4\), but FPropMeta')

  def testOtherNumberOfOutputsThanTheMetadata(self):

    def Meta(cls, p, x):
      del cls, p
      return py_utils.NestedMap(flops=1, out_shapes=(x, x))

    cell = toy_layers.Dense.Params().Set(name='cell')
    cell.cls = type('Liar', (toy_layers.Dense,), {'FPropMeta': classmethod(Meta)})
    self._Refused(
        lingvo_gpipe.PipeliningLayer.Params().Set(
            name='p', num_micro_batches=2, cell_tpl=[cell]),
        'cell: FProp gives 1 outputs, but FPropMeta says 2')

  def testNanNamesTheStage(self, devices):
    x = tf.constant(np.full([_BATCH, _DIM], np.nan), tf.float32)
    with flagsaver.flagsaver(enable_check_numerics=True):
      outputs = _Params(2).Instantiate().FPropDefaultTheta(x)
    with pytest.raises(tf.errors.InvalidArgumentError,
                       match=r'pipeline, stage 0 \(d0\): .* not finite'):
      devices.Run(tf.get_default_graph(), 2, outputs)

  def testUnknownRecomputeMode(self):
    self._Refused(_Params(2, recompute='maybe'), "recompute is 'maybe'")

  def testUnknownSchedule(self):
    self._Refused(_Params(2, schedule='2f2b'), "schedule is '2f2b'")

  def testNothingUnderWay(self):
    self._Refused(_Params(2, schedule='1f1b', in_flight=0), 'in_flight is 0')

  def testOutputsOfALoopThatTakesTheLoss(self):
    self._Refused(_Params(2, schedule='1f1b'), 'Call FPropLoss')


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
