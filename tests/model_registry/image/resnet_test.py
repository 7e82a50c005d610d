"""The registered networks train, alike for any number of stages."""

import sys

from absl.testing import flagsaver
import lingvo.compat as tf
from lingvo import model_registry as lingvo_model_registry
import numpy as np
import pytest

from model_registry.image import digits

_NAME = 'model_registry.image.resnet.ResNetDigits'


def _Params(dataset, k=1):
  p = lingvo_model_registry.GetParams(_NAME, dataset)
  p.task.pipeline.num_stages = k
  return p


def testParams():
  p = _Params('Train')
  assert p.input.num_samples == digits.NUM_TRAIN
  assert p.task.pipeline.num_stages == 1
  # What batch normalisation sees.
  assert p.input.batch_size // p.task.pipeline.num_micro_batches >= 32
  test = _Params('Test')
  assert test.input.num_samples == digits.NUM_TEST
  assert test.input.split == 'test' and not test.input.max_shift


def _Train(devices, k, steps):
  """Losses of the first steps, and the shapes of all variables by name."""
  graph = tf.Graph()
  # Initial weights then depend on seed and name alone.
  with flagsaver.flagsaver(stateless_vars_init=True), graph.as_default():
    with devices.Cluster(k):
      model = _Params('Train', k).Instantiate()
      model.ConstructFPropBPropGraph()
    init = tf.global_variables_initializer()
    shapes = {v.name: v.shape.as_list() for v in tf.global_variables()}
  task = model.GetTask()
  # Without rewrites: with them, where a stage ends changes the order in which
  # gradients are added, and ReLUs make more of the last bit step by step.
  with devices.Session(graph, k, rewrite=False) as session:
    session.run(init)
    task.input.Initialize(session)
    losses = [
        session.run([task.eval_metrics['loss'][0], task.train_op])[0]
        for _ in range(steps)
    ]
  return losses, shapes


def testStagesDontChangeLossesAndCheckpoints(devices):
  expected, expected_shapes = _Train(devices, 1, steps=12)
  losses, shapes = _Train(devices, 2, steps=12)
  assert shapes == expected_shapes
  np.testing.assert_allclose(losses, expected, rtol=1e-5)
  assert losses[-1] < losses[0] - .2


def testEvaluationCoversTheTestSplit(devices):
  p = _Params('Test')
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(1, do_eval=True):
    model = p.Instantiate()
    model.ConstructFPropGraph()
    init = tf.global_variables_initializer()
  task = model.GetTask()
  assert task.params.eval.samples_per_summary == digits.NUM_TEST
  with devices.Session(graph, 1) as session:
    session.run(init)
    task.input.Initialize(session)
    counts = []
    with pytest.raises(tf.errors.OutOfRangeError):
      while True:
        metrics = session.run(task.eval_metrics)
        counts.append(metrics['num_samples_in_batch'][0])
  assert counts == [128., 128., 104.]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
