"""The translation task: its metrics, training in a pipeline, decoding."""

import json
import sys

from absl.testing import flagsaver
import lingvo.compat as tf
from lingvo import model_registry as lingvo_model_registry
from lingvo.core import base_model
from lingvo.core import py_utils
import numpy as np
import pytest

from lingvo_gpipe.layers import translation_model
from model_registry.mt import byte_strings
from model_registry.mt import translator
from model_registry.text import vocabulary

_NAME = 'model_registry.mt.reverse.ReverseBytes'


def _Params(dataset, k, buckets=(5,), batch_sizes=(8,)):
  """ReverseBytes, as small as can be."""
  p = lingvo_model_registry.GetParams(_NAME, dataset)
  p.input.Set(
      max_length=buckets[-1] - 1, bucket_upper_bound=list(buckets),
      bucket_batch_limit=list(batch_sizes), batch_size=max(batch_sizes))
  if dataset == 'Test':
    p.input.num_samples = 11
  p.task.pipeline.Set(
      num_stages=k, num_micro_batches=k, pad_batch=len(batch_sizes) > 1,
      layers=translation_model.TranslationLayers(
          vocabulary.ByteVocabulary.size, 1, 8, 16, 2,
          shared_weights=p.task.pipeline.shared_weights),
      input_shapes=None)  # Layers weigh the same, and needn't be looked at.
  p.task.train.lr_schedule.warmup_steps = 2
  return p


def _Train(devices, k, steps, schedule='gpipe', checkpoint=None):
  """The losses and sizes of the first batches, of two lengths."""
  graph = tf.Graph()
  # Initial weights then depend on seed and name alone.
  with flagsaver.flagsaver(stateless_vars_init=True), graph.as_default():
    with devices.Cluster(k):
      p = _Params('Train', k, (3, 5), (4, 6))
      p.task.pipeline.schedule = schedule
      model = p.Instantiate()
      model.ConstructFPropBPropGraph()
    init = tf.global_variables_initializer()
    saver = tf.train.Saver()
  task = model.GetTask()
  losses, sizes = [], []
  with devices.Session(graph, k, rewrite=False) as session:
    session.run(init)
    task.input.Initialize(session)
    for _ in range(steps):
      metrics, _ = session.run([task.eval_metrics, task.train_op])
      losses.append(metrics['loss'][0])
      sizes.append(metrics['num_samples_in_batch'][0])
    if checkpoint:
      saver.save(session, checkpoint)
  return losses, sizes


def _Decode(devices, checkpoint):
  """Decodes the test split on one device; returns (texts, metrics)."""
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(1, do_eval=True):
    model = _Params('Test', 1).Instantiate()
    _, decoded = model.ConstructDecodeGraph()
    saver = tf.train.Saver()
  task = model.GetTask()
  metrics, texts = task.CreateDecoderMetrics(), []
  with devices.Session(graph, 1) as session:
    saver.restore(session, checkpoint)
    task.input.Initialize(session)
    for _ in range(2):  # 11 examples in batches of 8.
      texts += task.PostProcessDecodeOut(session.run(decoded), metrics)
  return texts, metrics


@pytest.mark.slow
def testTrainsAlikeInStagesAndDecodesWithout(devices, tmp_path):
  """Batches of two lengths and sizes; a checkpoint of 2 stages used by one."""
  checkpoint = str(tmp_path / 'ckpt')
  expected, sizes = _Train(devices, 1, steps=10)
  losses, _ = _Train(devices, 2, steps=10, checkpoint=checkpoint)
  np.testing.assert_allclose(losses, expected, rtol=1e-5)
  losses, _ = _Train(devices, 2, steps=10, schedule='1f1b')
  np.testing.assert_allclose(losses, expected, rtol=1e-5)
  assert set(sizes) == {4., 6.}
  assert np.mean(losses[-3:]) < np.mean(losses[:3]) - .3
  texts, metrics = _Decode(devices, checkpoint)
  assert len(texts) == metrics['num_samples_in_batch'].total_value == 11
  assert 'corpus_bleu' not in metrics
  plain = [(s, t['reference']) for s, t in texts if s.isascii() and '\\' not in s]
  assert plain and all(s[::-1] == reference for s, reference in plain)


def _Task(**kwargs):
  p = translator.Translator.Params().Set(name='mt', **kwargs)
  p.input = byte_strings.ByteStringInput.Params().Set(name='input', batch_size=2)
  p.pipeline.Set(name='pipeline', layers=translation_model.TranslationLayers(
      vocabulary.ByteVocabulary.size, 1, 8, 16, 2))
  return p.Instantiate()


def testMetricsAreMeansOverRealTokens():
  loss = np.array([[1., 2., 50.], [3., 60., 70.]], np.float32)
  hit = np.array([[1., 0., 1.], [1., 1., 1.]], np.float32)
  weights = np.array([[1., 1., 0.], [1., 0., 0.]], np.float32)
  with tf.Graph().as_default(), tf.Session() as session:
    task = _Task()

    def _Metrics(rows):
      return session.run(task.MicroBatchMetrics(
          None, (tf.constant(loss[rows]), tf.constant(hit[rows])),
          py_utils.NestedMap(weights=tf.constant(weights[rows]))))

    metrics = _Metrics(slice(None))
    parts = [_Metrics(slice(i, i + 1)) for i in range(2)]
    assert metrics['loss'] == metrics['log_pplx'] == (2., 3.)
    np.testing.assert_allclose(metrics['accuracy'], (2 / 3, 3.))
    for name, (value, weight) in metrics.items():
      assert weight == sum(p[name][1] for p in parts)
      np.testing.assert_allclose(
          value * weight, sum(np.prod(p[name]) for p in parts), rtol=1e-6)
    assert session.run(task.MicroBatchMetrics(
        None, (tf.ones([1, 2]), tf.ones([1, 2])),
        py_utils.NestedMap(weights=tf.zeros([1, 2]))))['loss'] == (0., 0.)


def _Rows(*texts):
  """(ids [batch, 8], lengths [batch]) of texts; after the end, anything."""
  ids = np.full([len(texts), 8], 2)
  for row, text in zip(ids, texts):
    row[:len(text)] = [3 + b for b in text]
  return ids, np.array([len(text) for text in texts])


def testDecodedTextsAreCompared(tmp_path):
  out = py_utils.NestedMap(weights=np.array([1., 1., 1., 0.]))
  out.source, out.source_lengths = _Rows(b'abc', b'de', b'\xff', b'')
  out.target, out.target_lengths = _Rows(b'cba', b'ed', b'\xff', b'')
  out.decoded, out.decoded_lengths = _Rows(b'cba', b'edd', b'\xff', b'')
  with tf.Graph().as_default():
    task = _Task()
    metrics = task.CreateDecoderMetrics()
    texts = task.PostProcessDecodeOut(out, metrics)
  assert metrics['num_samples_in_batch'].total_value == 3
  np.testing.assert_allclose(metrics['exact_match'].value, 2 / 3)
  assert 0 < metrics['corpus_bleu'].value < 1
  task.DecodeFinalize(base_model.DecodeFinalizeArgs(
      decode_out_path=str(tmp_path / 'out'), decode_out=texts))
  lines = (tmp_path / 'out.jsonl').read_text().splitlines()
  assert list(map(json.loads, lines)) == [
      dict(source='abc', reference='cba', decoded='cba'),
      dict(source='de', reference='ed', decoded='edd'),
      dict(source='\\xff', reference='\\xff', decoded='\\xff')]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
