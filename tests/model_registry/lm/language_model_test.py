"""A pipelined language model is the same layers in sequence; its metrics, against numpy."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np
import pytest

from lingvo_gpipe.layers import language_model as layers
from model_registry.lm import language_model

_BATCH, _TIME, _VOCAB = 4, 6, 11


def _Batch():
  """A packed batch as packing.Batch makes it, with padding, of numpy arrays."""
  rng = np.random.RandomState(1)
  segments = np.array([[1, 1, 2, 2, 2, 3], [1, 1, 1, 1, 1, 1],
                       [1, 2, 2, 2, 0, 0], [1, 1, 0, 0, 0, 0]], np.int32)
  positions = np.array([[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 4, 5],
                        [0, 0, 1, 2, 0, 0], [0, 1, 0, 0, 0, 0]], np.int32)
  return py_utils.NestedMap(
      ids=rng.randint(_VOCAB, size=[_BATCH, _TIME]).astype(np.int32),
      labels=rng.randint(_VOCAB, size=[_BATCH, _TIME]).astype(np.int32),
      segment_ids=segments, positions=positions,
      weights=(segments > 0).astype(np.float32),
      sizes=rng.randint(4, size=[_BATCH, _TIME]).astype(np.float32))


def _Params(k, m, tied=True, **kwargs):
  p = language_model.LanguageModel.Params().Set(name='lm')
  p.pipeline.Set(
      name='pipeline', num_stages=k, num_micro_batches=m,
      layers=layers.LanguageModelLayers(_VOCAB, 2, 8, 20, 2, tied=tied),
      shared_weights=layers.TIED_WEIGHTS if tied else {}, **kwargs)
  return p


def _Train(devices, k, m, **kwargs):
  """(metrics, {variable's name: gradient}) of a batch; the same initial weights for any k and m."""
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    graph.seed = 3  # Initial weights then depend on the variables' names.
    py_utils.GetOrCreateGlobalStepVar()
    task = _Params(k, m, **kwargs).Instantiate()
    metrics, _ = task.FPropTower(task.theta, _Batch().Transform(tf.constant))
    weights = tf.trainable_variables()
    gradients = tf.gradients(metrics['loss'][0], weights)
    gradients = {
        w.op.name: tf.convert_to_tensor(g) for w, g in zip(weights, gradients)
    }
  return devices.Run(graph, k, [metrics, gradients])


@pytest.mark.parametrize('schedule, tied', [
    ('gpipe', True), ('1f1b', True), ('gpipe', False)])
def testThePipelineIsTheLayersInSequence(devices, schedule, tied):
  metrics, gradients = _Train(devices, 2, 2, tied=tied, schedule=schedule)
  expected, expected_gradients = _Train(devices, 1, 1, tied=tied)
  assert sorted(metrics) == sorted(expected)
  for name, pair in expected.items():
    np.testing.assert_allclose(metrics[name], pair, rtol=1e-5, err_msg=name)
  # The names of the variables don't depend on the number of stages.
  assert sorted(gradients) == sorted(expected_gradients)
  assert any('embedding/w' in name for name in gradients)
  assert any('softmax/w' in name for name in gradients) != tied
  largest = max(np.abs(g).max() for g in expected_gradients.values())
  for name, gradient in expected_gradients.items():
    # A key's bias changes nothing: its gradient is rounding errors alone.
    np.testing.assert_allclose(
        gradients[name], gradient, rtol=1e-5, err_msg=name, atol=1e-7 * largest)


def testMetrics():
  batch = _Batch()
  loss = np.random.RandomState(2).rand(_BATCH, _TIME).astype(np.float32)
  with tf.Graph().as_default():
    task = _Params(1, 1).Instantiate()
    targets = task.PipelineTargets(None, batch.Transform(tf.constant))
    metrics = task.MicroBatchMetrics(None, tf.constant(loss), targets)
    nothing = task.MicroBatchMetrics(
        None, tf.constant(loss), targets.Transform(tf.zeros_like))
    with tf.Session() as session:
      metrics, nothing = session.run([metrics, nothing])
  total = (loss * batch.weights).sum()
  num_tokens = batch.weights.sum()
  num_bytes = (batch.sizes * batch.weights).sum()
  np.testing.assert_allclose(
      metrics['loss'], (total / num_tokens, num_tokens), rtol=1e-6)
  assert metrics['log_pplx'] == metrics['loss']
  np.testing.assert_allclose(
      metrics['bits_per_byte'], (total / np.log(2.) / num_bytes, num_bytes),
      rtol=1e-6)
  assert set(nothing.values()) == {(0., 0.)}


def testLogitsWhereThereAreNoLabels(devices):
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(2):
    task = _Params(2, 2).Instantiate()
    batch = _Batch().Transform(tf.constant)
    loss = task.ComputePredictions(task.theta, batch).outputs
    batch.labels = None
    logits = task.ComputePredictions(task.theta, batch).outputs
  loss, logits = devices.Run(graph, 2, [loss, logits])
  assert logits.shape == (_BATCH, _TIME, _VOCAB)
  log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  labels = _Batch().labels
  expected = -np.take_along_axis(log_probs, labels[:, :, None], -1)[:, :, 0]
  np.testing.assert_allclose(loss, expected, rtol=1e-4, atol=1e-5)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
