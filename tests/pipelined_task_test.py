"""A task whose loss is taken inside the pipeline has the same numbers."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
import pytest

from lingvo_gpipe import pipelined_task
from lingvo_gpipe.layers import language_model
from tests import toy_layers

_BATCH, _DIM, _M = 8, 4, 4


class Task(pipelined_task.PipelinedTask):
  """Squared errors over real examples, with a projection of the task's own."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('weight', 'targets', 'What the weight of the loss comes from.')
    return p

  def _CreateLayerVariables(self):
    super()._CreateLayerVariables()
    self.CreateVariable(
        'out', py_utils.WeightParams(
            [_DIM], py_utils.WeightInit.Gaussian(0.5, seed=3)))

  def PipelineInputs(self, theta, input_batch):
    return (input_batch.x,)

  def PipelineTargets(self, theta, input_batch):
    return py_utils.NestedMap(y=input_batch.y, real=input_batch.real)

  def MicroBatchMetrics(self, theta, outputs, targets):
    errors = tf.square(tf.linalg.matvec(outputs, theta.out) - targets.y)
    real = targets.real
    if self.params.weight == 'checked':  # By an assertion, a control edge.
      with tf.control_dependencies([tf.debugging.assert_less(tf.reduce_max(outputs), 1e9)]):
        real = tf.identity(real)
    num = tf.reduce_sum(outputs if self.params.weight == 'outputs' else real)
    loss = tf.reduce_sum(errors * targets.real) / tf.maximum(num, 1.)
    size = tf.reduce_mean(tf.square(outputs))
    return {'loss': (loss, num), 'size': (size, tf.shape(targets.y)[0]),
            'ones': (1., 1.)}


def _Params(k, weight='targets', m=_M, **pipeline):
  p = Task.Params().Set(
      name='task', weight=weight, auxiliary_losses={'size': .25})
  p.pipeline.Set(
      name='pipeline', num_stages=k, num_micro_batches=m, layers=[
          toy_layers.Dense.Params().Set(name=f'dense_{i}', dim=_DIM)
          for i in range(4)
      ], **pipeline)
  return p


def _Build(params, real):
  """(metrics, {name: gradient of the loss}) by tensors, of a task."""
  rng = np.random.RandomState(1)
  py_utils.GetOrCreateGlobalStepVar()
  task = params.Instantiate()
  batch = py_utils.NestedMap(
      x=tf.constant(rng.randn(_BATCH, _DIM), tf.float32),
      y=tf.constant(rng.randn(_BATCH), tf.float32),
      real=tf.constant(real, tf.float32))
  predictions = task.ComputePredictions(task.theta, batch)
  metrics, _ = task.ComputeLoss(task.theta, predictions, batch)
  variables = tf.trainable_variables()
  grads = tf.gradients(metrics['loss'][0], variables + [batch.x])
  return metrics, dict(zip([v.name for v in variables] + ['x'], grads))


def _Run(devices, k, real, do_eval=False, **kwargs):
  """(metrics, gradients of the loss by variable and of the inputs)."""
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k, do_eval=do_eval):
    fetches = _Build(_Params(k, **kwargs), real)
  return devices.Run(graph, k, fetches)


def _AssertSame(ours, expected):
  for a, b in zip(ours, expected):
    assert sorted(a) == sorted(b)
    for key in b:
      if key != 'ones':  # Its weight is the number of micro-batches.
        np.testing.assert_allclose(a[key], b[key], rtol=1e-5, atol=1e-6,
                                   err_msg=key)


# The micro-batches have from none to two real examples.
_REAL = [1, 0, 0, 0, 1, 1, 0, 1]


@pytest.mark.parametrize('k,recompute', [
    (1, 'never'), (2, 'always'), (2, 'except_last'), (3, 'never'),
    (3, 'selective')])
def testMeansAreOverTheWholeMiniBatch(devices, k, recompute):
  expected = _Run(devices, 1, _REAL)
  ours = _Run(devices, k, _REAL, schedule='1f1b', recompute=recompute)
  _AssertSame(ours, expected)
  assert np.abs(ours[1]['task/out/var:0']).max() > 1e-3
  assert ours[0]['ones'] == (1., _M)


def testMicroBatchesOfDifferentSizes(devices):
  kwargs = dict(m=3, pad_batch=True)
  _AssertSame(_Run(devices, 2, _REAL, schedule='1f1b', **kwargs),
              _Run(devices, 2, _REAL, **kwargs))


def testNoRealExample(devices):
  metrics, grads = _Run(devices, 2, [0] * _BATCH, schedule='1f1b')
  assert metrics['loss'][1] == 0 and np.isfinite(metrics['loss'][0])
  assert all(np.isfinite(g).all() for g in grads.values())


def testEvaluationHasOutputs(devices):
  with tf.Graph().as_default(), devices.Cluster(2, do_eval=True):
    task = _Params(2, schedule='1f1b').Instantiate()
    predictions = task.ComputePredictions(
        task.theta, py_utils.NestedMap(x=tf.zeros([_BATCH, _DIM])))
  assert predictions.outputs.shape == [_BATCH, _DIM]


@pytest.mark.parametrize('in_flight', [None, 2])
def testMicroBatchesUnderWay(devices, in_flight):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(3):
    _Build(_Params(3, schedule='1f1b', in_flight=in_flight), _REAL)
  bounds = {op.get_attr('parallel_iterations') for op in graph.get_operations()
            if op.type == 'Enter' and b'one_f_one_b' in op.get_attr('frame_name')}
  assert bounds == {in_flight or 4}


@pytest.mark.parametrize('weight', ['outputs', 'checked'])
def testWeightThatDependsOnTheOutputsIsRefused(devices, weight):
  with tf.Graph().as_default(), devices.Cluster(2), pytest.raises(
      ValueError, match='weight of the metric loss depends on the outputs'):
    _Build(_Params(2, schedule='1f1b', weight=weight), _REAL)


class _Trained(Task):
  """Its targets depend on the weights."""

  def PipelineTargets(self, theta, input_batch):
    targets = super().PipelineTargets(theta, input_batch)
    targets.y *= theta.out[0]
    return targets


class _Scalar(Task):
  """One of its targets can't be split."""

  def PipelineTargets(self, theta, input_batch):
    targets = super().PipelineTargets(theta, input_batch)
    targets.y = tf.constant(1.)
    return targets


@pytest.mark.parametrize('cls, match', [
    (_Trained, 'target y depends on the variable task/out/var:0, .*MicroBatchMetrics'),
    (_Scalar, 'target y is a scalar')])
def testTargetsThatAreRefused(devices, cls, match):
  p = _Params(2, schedule='1f1b')
  p.cls = cls
  with tf.Graph().as_default(), devices.Cluster(2), pytest.raises(ValueError, match=match):
    _Build(p, _REAL)


class _Annealed(Task):
  """Its metrics and the step of training."""

  def MicroBatchMetrics(self, theta, outputs, targets):
    metrics = super().MicroBatchMetrics(theta, outputs, targets)
    step = tf.cast(py_utils.GetGlobalStep(), tf.float32)
    loss, weight = metrics['loss']
    return dict(metrics, loss=(loss / (1. + step), weight))


def testMetricsSeeTheGlobalStep(devices):
  losses = []
  for schedule in ('gpipe', '1f1b'):
    graph = tf.Graph()
    with graph.as_default(), devices.Cluster(2):
      step = py_utils.GetOrCreateGlobalStepVar()
      p = _Params(2, schedule=schedule)
      p.cls = _Annealed
      metrics, _ = _Build(p, _REAL)
      init, at_ten = tf.global_variables_initializer(), step.assign(10)
    with devices.Session(graph, 2) as session:
      session.run(init)
      session.run(at_ten)
      losses.append(session.run(metrics['loss'][0]))
  assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def testMissingTermIsRefused(devices):
  p = _Params(2, schedule='1f1b').Set(auxiliary_losses={'balance': 1.})
  with tf.Graph().as_default(), devices.Cluster(2), pytest.raises(
      ValueError, match='loss, ones, size; balance is missing'):
    _Build(p, _REAL)


def testInferenceIsThePipelineForAnyBatch(devices):
  p = _Params(2)
  with tf.Graph().as_default(), devices.Cluster(2, do_eval=True), pytest.raises(
      ValueError, match='input_shapes of the pipeline pipeline is not set'):
    p.Instantiate().Inference()
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(1, do_eval=True):
    task = _Params(1, input_shapes=[[_BATCH, _DIM]]).Instantiate()
    outputs, inputs = task.Inference()['default']
    assert list(outputs) == ['output'] and list(inputs) == ['input']
    assert inputs.input.shape.as_list() == [None, _DIM]
    expected = task.pipeline.FProp(task.theta.pipeline, inputs.input)
    init = tf.global_variables_initializer()
  with devices.Session(graph, 1) as session:
    session.run(init)
    out, expected = session.run(
        [outputs.output, expected], {inputs.input: np.ones([3, _DIM])})
  assert out.any()
  np.testing.assert_array_equal(out, expected)


def testInferenceNamesWhatIsSeveral(devices):
  tokens = tf.TensorSpec([_BATCH, 5], tf.int32)
  with tf.Graph().as_default(), devices.Cluster(1, do_eval=True):
    p = _Params(1, input_shapes=[tokens] * 3 + [None])
    p.pipeline.layers = language_model.LanguageModelLayers(7, 1, 4, 8, 1)
    outputs, inputs = p.Instantiate().Inference()['default']
  assert {k: (x.shape.as_list(), x.dtype.name) for k, x in inputs.items()} == {
      f'input_{i}': ([None, 5], 'int32') for i in range(3)}
  assert list(outputs) == ['output']


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
