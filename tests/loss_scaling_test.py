"""Half-precision pipelines: what stays float32, and gradients that survive."""

import sys

from absl.testing import flagsaver
import lingvo.compat as tf
from lingvo.core import base_model
from lingvo.core import learner
from lingvo.core import optimizer
from lingvo.core import py_utils
from lingvo.core import schedule
import numpy as np
import pytest

from lingvo_gpipe import loss_scaling
from lingvo_gpipe.layers import resnet
from model_registry.image import classifier
from model_registry.image import digits


def _Learner(cls=loss_scaling.ScalingLearner, **scaling):
  p = cls.Params().Set(
      name='loss', learning_rate=1., optimizer=optimizer.SGD.Params(),
      lr_schedule=schedule.Constant.Params())
  if scaling:
    p.loss_scaling.Set(**scaling)
  return p.Instantiate()


class _Half:
  """The loss w * factor in float16, w a float32 variable that begins as 0."""

  def __init__(self, factor, **kwargs):
    self._graph = tf.Graph()
    with self._graph.as_default():
      py_utils.GetOrCreateGlobalStepVar()
      self._factor = tf.Variable(factor, trainable=False)
      w = tf.Variable(0., name='w')
      self.learner = _Learner(**kwargs)
      # The gradient of the product is float16, and so is factor * it.
      half = tf.cast(w, tf.float16) * tf.cast(1e-2, tf.float16)
      loss = tf.cast(half, tf.float32) * self._factor
      _, self._update, metrics = self.learner.Apply(
          {'loss': (loss, tf.constant(1.))}, py_utils.NestedMap(w=w))
      self._fetches = [w, metrics.get('loss_scale', (tf.constant(0.),))[0]]
      self._init = tf.global_variables_initializer()

  def Run(self, *factors):
    """Steps with these factors in turn: (w after each, the scale after each)."""
    with tf.Session(graph=self._graph) as session:
      session.run(self._init)
      values = []
      for factor in factors:
        self._factor.load(factor, session)
        session.run(self._update)
        values.append(session.run(self._fetches))
    return zip(*values)


def testSmallGradientsSurvive():
  # 1e-8 is less than float16's smallest number.
  w, _ = _Half(0., cls=learner.Learner).Run(1e-8)
  assert w == (0.,)
  w, scales = _Half(0., initial_scale=2.**15).Run(1e-8)
  np.testing.assert_allclose(w, [-1e-10], rtol=1e-2)
  assert scales == (2.**15,)


def testTheScaleFindsItsSize():
  half = _Half(0., initial_scale=2.**15, growth_interval=2)
  w, scales = half.Run(10., 1., 1., 1., 1., np.inf, 1.)
  # 10 * 2^15 is no float16.
  assert scales == tuple(
      2.**n for n in (14, 14, 15, 15, 16, 15, 15))
  np.testing.assert_allclose(
      w, [0., -.01, -.02, -.03, -.04, -.04, -.05], rtol=1e-2)


def testAFixedScaleAndBounds():
  _, scales = _Half(0., initial_scale=8., growth_interval=0).Run(1., np.inf)
  assert scales == (8., 8.)
  _, scales = _Half(0., initial_scale=2., growth_interval=9).Run(*[np.inf] * 3)
  assert scales == (1., 1., 1.)
  _, scales = _Half(0., initial_scale=2.**23, growth_interval=1).Run(
      *[1e-9] * 3)
  assert scales == (2.**24,) * 3


def testSparseGradients():
  with tf.Graph().as_default():
    py_utils.GetOrCreateGlobalStepVar()
    table = tf.Variable(np.ones([4, 2], np.float32))
    loss = tf.reduce_sum(tf.gather(table, [1, 1]))
    scaling = _Learner(initial_scale=2.**10)
    _, update, _ = scaling.Apply(
        {'loss': (loss, tf.constant(1.))}, py_utils.NestedMap(w=table))
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(update)
      np.testing.assert_allclose(
          session.run(table), [[1, 1], [-1, -1], [1, 1], [1, 1]])


def testALearnerThatScalesNothing():
  p = classifier.PipelinedClassifier.Params().Set(name='task')
  p.loss_scaling.initial_scale = 8.
  p.train.learner = learner.Learner.Params().Set(name='loss')
  with pytest.raises(ValueError, match='task: .* train.learner is set and scales no loss'):
    loss_scaling.WithLearner(p)
  p.train.learner = loss_scaling.ScalingLearner.Params().Set(name='loss')
  assert loss_scaling.WithLearner(p) is p


def testOneLossOnly():
  with tf.Graph().as_default(), pytest.raises(ValueError, match='one loss'):
    loss_scaling.ScalingLearner.Params().Set(
        name='loss', loss_name=['a', 'b']).Instantiate()


def _Train(devices, overrides, steps=12):
  """Losses, dtypes of variables and of gradients of a small ResNet on digits."""
  p = classifier.PipelinedClassifier.Params().Set(name='task')
  p.input = digits.DigitsInput.Params().Set(batch_size=16)
  config = resnet.ResNetConfig((1,), (4,), small_images=True)
  p.pipeline.Set(
      name='pipeline', num_stages=2, num_micro_batches=2,
      layers=resnet.ResNetLayers(config, 10, input_dim=1))
  p.train.Set(
      learning_rate=.05, optimizer=optimizer.Momentum.Params().Set(alpha=.9),
      lr_schedule=schedule.Constant.Params(), l2_regularizer_weight=1e-4)
  p.FromText('\n'.join(overrides))
  graph = tf.Graph()
  # Initial weights then depend on seed and name alone.
  with flagsaver.flagsaver(stateless_vars_init=True), graph.as_default():
    with devices.Cluster(2):
      model = base_model.SingleTaskModel.Params(p).Instantiate()
      model.ConstructFPropBPropGraph()
    init = tf.global_variables_initializer()
    variables = {v.op.name: v.dtype.base_dtype for v in tf.global_variables()}
  task = model.GetTask()
  gradients = {
      vg.grad.dtype for vg in task.learners[0].GetVarGrads().Flatten()
  }
  with devices.Session(graph, 2) as session:
    session.run(init)
    task.input.Initialize(session)
    losses = [
        session.run([task.eval_metrics['loss'][0], task.train_op])[0]
        for _ in range(steps)
    ]
  return losses, variables, gradients


def testHalfPrecisionPipelines(devices):
  expected, variables, _ = _Train(devices, [])
  assert np.mean(expected[-4:]) < np.mean(expected[:4]) - .05
  floats = {n for n, dtype in variables.items() if dtype == tf.float32}
  assert any('moving_variance' in name for name in floats)
  for overrides, atol in (
      (['fprop_dtype: bfloat16'], .05),
      (['fprop_dtype: float16', 'loss_scaling.initial_scale: 1024'], .01),
      (['fprop_dtype: float16', 'loss_scaling.initial_scale: 1024',
        'pipeline.schedule: 1f1b'], .01)):
    losses, variables, gradients = _Train(devices, overrides)
    np.testing.assert_allclose(losses, expected, atol=atol, err_msg=str(overrides))
    assert (losses != np.float32(expected)).any()  # It is another precision.
    assert gradients == {tf.float32}
    assert floats <= {n for n, dtype in variables.items() if dtype == tf.float32}
    assert not {tf.float16, tf.bfloat16} & set(variables.values())


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
