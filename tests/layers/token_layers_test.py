"""Embedding and softmax, against numpy."""

import sys

import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import tshape
import numpy as np
import pytest
import scipy.special

from lingvo_gpipe.layers import token_layers

_BATCH, _TIME, _DIM, _VOCAB = 2, 3, 4, 5


def _Run(params, *args, do_eval=False):
  """(what FProp gives, {variable's name: value})."""
  cluster = cluster_factory.Current().params.Copy().Set(do_eval=do_eval)
  graph = tf.Graph()
  with graph.as_default(), cluster.Instantiate():
    layer = params.Instantiate()
    out = layer.FPropDefaultTheta(*map(tf.constant, args))
    variables = {v.op.name: v for v in tf.global_variables()}
    with tf.Session(graph=graph) as session:
      session.run(tf.global_variables_initializer())
      return session.run([out, variables])


def _Embedding(**kwargs):
  return token_layers.TokenEmbedding.Params().Set(
      name='embedding', vocab_size=_VOCAB, dim=_DIM, **kwargs)


def _Softmax(**kwargs):
  return token_layers.TokenSoftmax.Params().Set(
      name='softmax', input_dim=_DIM, vocab_size=_VOCAB, **kwargs)


def testEmbedding():
  ids = np.array([[0, 4, 2], [1, 1, 3]])
  segments = np.array([[1, 1, 2], [1, 1, 1]])
  positions = np.array([[0, 1, 0], [0, 1, 2]])
  (x, passed_on, other), variables = _Run(
      _Embedding(), ids, segments, positions, 7)
  angle = positions[:, :, None] * np.array([1.0, 1e-4])
  sinusoids = np.concatenate([np.sin(angle), np.cos(angle)], -1)
  expected = 2.0 * variables['embedding/w/var'][ids] + sinusoids
  np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
  np.testing.assert_array_equal(passed_on, segments)
  assert other == 7


def _LogProbs(x, variables):
  """Of softmax over the normalised vectors."""
  x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
  logits = x @ variables['softmax/w/var'].T + variables['softmax/b/var']
  return logits, scipy.special.log_softmax(logits, -1)


@pytest.mark.parametrize('smoothing, do_eval', [(0., False), (.1, False),
                                                (.1, True)])
def testLossAndLogits(smoothing, do_eval):
  x = np.random.RandomState(3).randn(_BATCH, _TIME, _DIM).astype(np.float32)
  segments = np.ones([_BATCH, _TIME], np.int32)
  labels = np.array([[0, 4, 2], [1, 1, 3]])
  params = _Softmax(label_smoothing=smoothing, random_seed=5)
  loss, variables = _Run(params, x, segments, labels, do_eval=do_eval)
  logits, log_probs = _LogProbs(x, variables)
  share = 0. if do_eval else smoothing
  target = np.eye(_VOCAB)[labels] * (1. - share) + share / _VOCAB
  np.testing.assert_allclose(
      loss, -(target * log_probs).sum(-1), rtol=1e-5, atol=1e-5)
  found, variables = _Run(params, x, segments)
  logits, _ = _LogProbs(x, variables)
  np.testing.assert_allclose(found, logits, rtol=1e-5, atol=1e-5)


def testTiedSoftmaxHasNoWeightOfItsOwn():
  with tf.Graph().as_default():
    layer = _Softmax(tied=True).Instantiate()
  assert 'w' not in layer.vars and 'b' in layer.vars


def testMetadata():
  tokens = tshape.Shape([_BATCH, _TIME])
  vectors = tshape.Shape([_BATCH, _TIME, _DIM])
  p = _Embedding()
  meta = p.cls.FPropMeta(p, tokens, tokens, tokens, tokens)
  assert [list(s) for s in meta.out_shapes] == [
      [_BATCH, _TIME, _DIM], [_BATCH, _TIME], [_BATCH, _TIME]]
  p = _Softmax()
  meta = p.cls.FPropMeta(p, vectors, tokens)
  assert list(meta.out_shapes[0]) == [_BATCH, _TIME, _VOCAB]
  assert meta.flops == 2 * _BATCH * _TIME * _DIM * _VOCAB
  (loss,) = p.cls.FPropMeta(p, vectors, tokens, tokens).out_shapes
  assert list(loss) == [_BATCH, _TIME]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
