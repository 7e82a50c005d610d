"""Who sees whom in a Transformer layer, what it costs, and how its gradient is taken."""

import sys

import lingvo.compat as tf
from lingvo.core import py_utils
from lingvo.core import tshape
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe.layers import transformer

_BATCH, _TIME, _DIM, _HIDDEN, _HEADS = 6, 7, 10, 22, 2


def _Layer(name='layer', **kwargs):
  return transformer.BlockParams(
      transformer.TransformerLayer, name, _DIM, _HIDDEN, _HEADS).Set(**kwargs)


def _Influence(segment_ids, **kwargs):
  """Whether the output at i depends on the input at j: bools [time, time]."""
  rng = np.random.RandomState(1)
  x = np.tile(rng.randn(_TIME, _DIM), [_TIME + 1, 1, 1]).astype(np.float32)
  for j in range(_TIME):
    x[j, j] = rng.randn(_DIM)  # The last row stays as it is.
  with tf.Graph().as_default():
    layer = _Layer(**kwargs).Instantiate()
    y, _ = layer.FPropDefaultTheta(
        tf.constant(x), tf.tile(segment_ids[None], [_TIME + 1, 1]))
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      y = session.run(y)
  return (np.abs(y[:-1] - y[-1]) > 1e-5).any(axis=-1).T


def testATokenSeesThoseUpToItselfInItsSegment():
  segments = np.array([1, 1, 1, 2, 2, 3, 0])
  same = segments[:, None] == segments[None, :]
  np.testing.assert_array_equal(_Influence(segments), np.tril(same))


def testWithoutTheCausalMaskATokenSeesItsSegment():
  segments = np.array([1, 1, 1, 2, 2, 3, 0])
  same = segments[:, None] == segments[None, :]
  np.testing.assert_array_equal(
      _Influence(segments, mask_self_atten=False), same)


def testWeightGradientsAreNotTakenPerTimeStepOrExample(devices):
  """Lingvo's time-major layers take them so, which makes pipelines slow."""
  micro_batches = 2
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(1):
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='pipeline', layers=[_Layer()],
        num_micro_batches=micro_batches).Instantiate()
    y, _ = net.FPropDefaultTheta(
        tf.ones([_BATCH, _TIME, _DIM]), tf.ones([_BATCH, _TIME], tf.int32))
    weights = tf.trainable_variables()
    assert all(g is not None for g in tf.gradients(y, weights))
  sizes = {
      int(np.prod(w.shape)) for w in weights if w.op.name.endswith('/w/var')
  }
  products = [
      x for op in graph.get_operations() for x in op.outputs
      if op.type in ('MatMul', 'Einsum') or op.type.startswith('BatchMatMul')
  ]
  found = [x.shape.num_elements() for x in products]
  assert None not in found  # Shapes are static, so all were looked at.
  assert sizes <= set(found)  # Gradients of weights are among the products.
  per_step = {n * size for size in sizes
              for n in (_TIME, _BATCH // micro_batches)}
  assert not per_step & set(found)


def _ProductFlops(graph):
  """FLOPs of the matrix products in a graph."""
  total = 0
  for op in graph.get_operations():
    if op.type == 'Einsum':
      terms, _ = op.get_attr('equation').decode().split('->')
      sizes = {}
      for term, x in zip(terms.split(','), op.inputs):
        sizes.update(zip(term, x.shape.as_list()))
      total += 2 * int(np.prod(list(sizes.values())))
    elif op.type == 'MatMul':
      contracted = op.inputs[0].shape[0 if op.get_attr('transpose_a') else 1]
      total += 2 * op.outputs[0].shape.num_elements() * int(contracted)
    assert not op.type.startswith('BatchMatMul'), op
  return total


def testMetadata():
  segments = tshape.Shape([_BATCH, _TIME])
  x = tshape.Shape([_BATCH, _TIME, _DIM])
  p = _Layer()
  meta = p.cls.FPropMeta(p, x, segments, segments)
  graph = tf.Graph()
  with graph.as_default():
    ids = tf.ones([_BATCH, _TIME], tf.int32)
    out = p.Instantiate().FPropDefaultTheta(
        tf.ones([_BATCH, _TIME, _DIM]), ids, ids)
  assert meta.flops == _ProductFlops(graph)
  assert [o.shape.as_list() for o in out] == [list(s) for s in meta.out_shapes]
  assert out[2] is ids


def testHeadsThatDoNotDivideTheDimension():
  with pytest.raises(ValueError, match='layer: num_heads=3 .* dim=10'):
    transformer.BlockParams(transformer.TransformerLayer, 'layer', 10, 20, 3)


def testDropoutIsWhereItWasAskedFor():
  p = transformer.BlockParams(
      transformer.TransformerLayer, 'layer', _DIM, _HIDDEN, _HEADS, 0.25)
  with tf.Graph().as_default():
    layer = p.Instantiate()
  found = [l.params.keep_prob for l in py_utils.Flatten(_Descendants(layer))
           if 'keep_prob' in l.params]
  # Of attention weights, both residual branches and the hidden units; none of
  # the feed-forward network's output besides its residual branch.
  assert sorted(found) == [0.75] * 4 + [1.0]


def _Descendants(layer):
  children = py_utils.Flatten(layer.children)
  return children + [d for c in children for d in _Descendants(c)]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
