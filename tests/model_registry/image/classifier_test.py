"""The classifier's loss and metrics, against numpy."""

import sys

import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import py_utils
import numpy as np
import pytest
import scipy.special

from lingvo_gpipe.layers import resnet
from model_registry.image import classifier

_CLASSES = 3


def _Task(**kwargs):
  p = classifier.PipelinedClassifier.Params().Set(name='task', **kwargs)
  config = resnet.ResNetConfig((1,), (4,), small_images=True)
  layers = resnet.ResNetLayers(config, _CLASSES, input_dim=1)
  p.pipeline.Set(name='pipeline', layers=layers)
  return p.Instantiate()


def _Metrics(logits, labels, weights, do_eval=False, **kwargs):
  graph = tf.Graph()
  cluster = cluster_factory.Current().params.Copy().Set(do_eval=do_eval)
  with graph.as_default(), cluster.Instantiate():
    task = _Task(**kwargs)
    metrics, _ = task.ComputeLoss(
        task.theta, py_utils.NestedMap(outputs=tf.constant(logits, tf.float32)),
        py_utils.NestedMap(
            label=tf.constant(labels, tf.int64),
            weight=tf.constant(weights, tf.float32)))
    with tf.Session(graph=graph) as session:
      return session.run(metrics)


_LOGITS = np.array([[3., 1., 0.], [0., 2., 1.], [1., 1.5, 0.], [9., 0., 0.]])
_LABELS = [0, 1, 2, 1]


@pytest.mark.parametrize('weights', [[1, 1, 1, 1], [1, 1, 1, 0], [0, 0, 1, 0]])
def testOnlyRealExamplesCount(weights):
  n = sum(weights)
  log_probs = scipy.special.log_softmax(_LOGITS, -1)
  loss = -log_probs[range(4), _LABELS] @ weights / n
  accuracy = np.dot([1, 1, 0, 0], weights) / n
  metrics = _Metrics(_LOGITS, _LABELS, weights, do_eval=True)
  np.testing.assert_allclose(metrics['loss'], (loss, n), rtol=1e-6)
  np.testing.assert_allclose(metrics['log_pplx'], (loss, n), rtol=1e-6)
  np.testing.assert_allclose(metrics['accuracy'], (accuracy, n), rtol=1e-6)
  np.testing.assert_allclose(metrics['error'], (1. - accuracy, n), atol=1e-6)
  assert metrics['num_samples_in_batch'] == (n, 1.)


def testNoRealExample():
  metrics = _Metrics(_LOGITS, _LABELS, [0, 0, 0, 0])
  assert metrics['loss'] == (0., 0.)


def testLabelSmoothingInTrainingOnly():
  targets = np.eye(_CLASSES)[_LABELS] * .9 + .1 / _CLASSES
  smoothed = -(targets * scipy.special.log_softmax(_LOGITS, -1)).sum(-1).mean()
  weights, kwargs = [1, 1, 1, 1], dict(label_smoothing=.1)
  loss, _ = _Metrics(_LOGITS, _LABELS, weights, **kwargs)['loss']
  np.testing.assert_allclose(loss, smoothed, rtol=1e-6)
  plain = _Metrics(_LOGITS, _LABELS, weights, do_eval=True)['loss']
  loss, _ = _Metrics(_LOGITS, _LABELS, weights, do_eval=True, **kwargs)['loss']
  np.testing.assert_allclose(loss, plain[0], rtol=1e-6)


def testWeightDecayLeavesBatchNormAlone():
  with tf.Graph().as_default():
    _Task()
    kept = {v.ref() for v in tf.get_collection(py_utils.SKIP_LP_REGULARIZATION)}
    decayed = {v.name for v in tf.trainable_variables() if v.ref() not in kept}
    is_norm = [name for name in decayed if 'gamma' in name or 'beta' in name]
    assert not is_norm and any('conv0' in name for name in decayed)


def testPredictions():
  with tf.Graph().as_default():
    task = _Task(fprop_dtype=tf.bfloat16)
    image = tf.zeros([8, 6, 6, 1], tf.float32)
    logits = task.ComputePredictions(
        task.theta, py_utils.NestedMap(image=image)).outputs
  assert logits.shape == [8, _CLASSES]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
