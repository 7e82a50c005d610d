"""Who sees whom in an encoder-decoder, and that a pipeline changes nothing."""

import sys

import lingvo.compat as tf
from lingvo.core import tshape
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import called_functions
from lingvo_gpipe import flop_counts
from lingvo_gpipe import layers_in_sequence
from lingvo_gpipe.layers import seq2seq
from lingvo_gpipe.layers import translation_model

_BATCH, _SOURCE_TIME, _TIME = 4, 5, 6
_VOCABULARY, _DIM, _HEADS = 11, 8, 2
_SOURCE_LENGTHS, _LENGTHS = [5, 3, 1, 2], [6, 1, 3, 4]


def _Pipeline(**kwargs):
  layers = translation_model.TranslationLayers(
      _VOCABULARY, 1, _DIM, 2 * _DIM, _HEADS,
      shared_weights=translation_model.TIED_WEIGHTS)
  return lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', layers=layers,
      shared_weights=translation_model.TIED_WEIGHTS, **kwargs)


def _Side(rng, lengths, time):
  """Random ids, segment ids and positions of one side, int32 [batch, time]."""
  segment_ids = (np.arange(time) < np.array(lengths)[:, None]).astype(np.int32)
  ids = rng.randint(1, _VOCABULARY, segment_ids.shape).astype(np.int32)
  positions = np.tile(np.arange(time, dtype=np.int32), [len(lengths), 1])
  return [ids, segment_ids, positions]


def _Inputs():
  """What the first layer takes, a list of numpy arrays."""
  rng = np.random.RandomState(1)
  source = _Side(rng, _SOURCE_LENGTHS, _SOURCE_TIME)
  target = _Side(rng, _LENGTHS, _TIME)
  return source + target + _Side(rng, _LENGTHS, _TIME)[:1]


def _RandomWeights(layer):
  """Weights that depend on the shapes alone."""
  rng = np.random.RandomState(2)
  return layer.theta.Transform(
      lambda w: tf.constant(.5 * rng.randn(*w.shape), tf.float32))


def _InSequence(layers, args):
  for layer, theta in layers:
    args = layer.FProp(theta, *args)
  return args


def testPipelineEqualsTheLayersInSequence(devices):
  """Cut inside of the encoder, between the two, and inside of the decoder."""
  cuts = [1, 2, 3]
  k = len(cuts) + 1
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(k):
    net = _Pipeline(
        num_stages=k, num_micro_batches=2, partition=cuts).Instantiate()
    assert [len(s.layers) for s in net.stages] == np.diff([0, *cuts, 5]).tolist()
    theta = _RandomWeights(net)
    layers = layers_in_sequence.LayersInSequence(net, theta)
    inputs = [tf.constant(x) for x in _Inputs()]
    weights = tf.cast(inputs[4], tf.float32)
    results = []
    for loss, hit in (net.FProp(theta, *inputs), _InSequence(layers, inputs)):
      loss *= weights
      results.append((
          loss, hit * weights,
          tf.gradients(tf.reduce_sum(loss), theta.Flatten())))
    names = [key for key, _ in theta.FlattenItems()]
  (loss, hit, grads), expected = devices.Run(graph, k, results)
  np.testing.assert_allclose(loss, expected[0], rtol=1e-5)
  np.testing.assert_array_equal(hit, expected[1])
  for name, grad, other in zip(names, grads, expected[2]):
    # (That of a key's bias is 0: it adds the same to all logits.)
    np.testing.assert_allclose(
        grad, other, rtol=1e-5, atol=1e-5 * max(1., abs(other).max()),
        err_msg=name)


class _Model:
  """The layers in sequence, for inputs of any size."""

  def __init__(self):
    self.graph = tf.Graph()
    with self.graph.as_default():
      net = _Pipeline().Instantiate()
      self.layers = layers_in_sequence.LayersInSequence(net, _RandomWeights(net))
      self._inputs = [tf.placeholder(tf.int32, [None, None]) for _ in range(7)]
      self._loss, _ = _InSequence(self.layers, self._inputs)
      self._logits = _InSequence(self.layers, self._inputs[:6])

  def Losses(self, args):
    """The losses [batch, time], and what isn't padding."""
    return self._Run(self._loss, args), args[4] > 0

  def Logits(self, args):
    return self._Run(self._logits, args)

  def _Run(self, fetch, args):
    with tf.Session(graph=self.graph) as session:
      return session.run(fetch, dict(zip(self._inputs, args)))


@pytest.fixture(name='model', scope='module')
def _SharedModel():
  return _Model()


def testPaddingAndNeighboursDontMatter(model):
  """A batch of different lengths, and a packed row, are each pair alone."""
  inputs = _Inputs()
  together, real = model.Losses(inputs)
  pairs = [
      [x[i:i + 1, :s] for x in inputs[:3]] + [x[i:i + 1, :t] for x in inputs[3:]]
      for i, (s, t) in enumerate(zip(_SOURCE_LENGTHS, _LENGTHS))
  ]
  for i, alone in enumerate(pairs):
    loss, _ = model.Losses(alone)
    np.testing.assert_allclose(
        together[i][real[i]], loss[0], rtol=1e-5, atol=1e-5)
  packed = [np.concatenate(xs, 1) for xs in zip(*pairs)]
  for side in (1, 4):
    packed[side] = np.repeat(
        [[1, 2, 3, 4]], [p[side].shape[1] for p in pairs], axis=1)
  # And padding behind them, which a pair alone doesn't have.
  packed = [np.pad(x, [(0, 0), (0, 2)]) for x in packed]
  loss, in_row = model.Losses(packed)
  np.testing.assert_allclose(
      loss[in_row], together[real], rtol=1e-5, atol=1e-5)
  assert np.isfinite(loss).all() and np.isfinite(together).all()


def testATargetTokenSeesEarlierOnesAndItsWholeSource(model):
  inputs = _Inputs()
  before, _ = model.Losses(inputs)
  inputs[3][0, 3] = 1 + inputs[3][0, 3] % (_VOCABULARY - 1)
  after, _ = model.Losses(inputs)
  np.testing.assert_array_equal(
      abs(after - before)[0] > 1e-6, np.arange(_TIME) >= 3)
  inputs[0][0, 4] = 1 + inputs[0][0, 4] % (_VOCABULARY - 1)
  assert (model.Losses(inputs)[0] != after)[0].all()


def testTokenByTokenGivesTheSameLogits(model):
  inputs = _Inputs()
  inputs[4] = np.ones_like(inputs[4])
  with model.graph.as_default():
    args = [tf.constant(x) for x in inputs[:3]]
    segment_ids = args[1]
    args = _InSequence(model.layers[:2], args)
    decoder = model.layers[2:]
    embedding, theta = decoder[0]
    memory = embedding.Memory(theta, args[0])
    states = [l.InitStates(theta, _BATCH, _TIME) for l, theta in decoder]
    steps = []
    for t in range(_TIME):
      x = tf.constant(inputs[3][:, t:t + 1])
      for i, (layer, theta) in enumerate(decoder):
        x, states[i] = layer.ExtendStep(
            theta, x, memory, segment_ids, states[i], t)
      steps.append(x)
    with tf.Session() as session:
      logits = session.run(tf.concat(steps, 1))
  np.testing.assert_allclose(
      logits, model.Logits(inputs[:6]), rtol=1e-4, atol=1e-4)


def testSoftmaxSmoothsInTrainingAndClips():
  with tf.Graph().as_default(), tf.Session() as session:
    layer = seq2seq.TargetSoftmax.Params().Set(
        name='softmax', input_dim=_DIM, vocab_size=_VOCABULARY,
        label_smoothing=.2, logits_abs_max=1.5).Instantiate()
    theta = _RandomWeights(layer)
    x = tf.constant(np.random.RandomState(3).randn(1, 3, _DIM), tf.float32)
    labels = np.array([[1, 4, 10]])
    logits, (loss, hit) = session.run([
        layer.FProp(theta, x, None),
        layer.FProp(theta, x, None, labels=tf.constant(labels))])
  assert abs(logits).max() == 1.5
  targets = .8 * np.eye(_VOCABULARY)[labels] + .2 / _VOCABULARY
  log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  np.testing.assert_allclose(loss, -(targets * log_probs).sum(-1), rtol=1e-5)
  np.testing.assert_array_equal(hit, logits.argmax(-1) == labels)


def testFlopsAreThoseOfTheProducts():
  """With heads that are wider than the model, as in the paper's T(L, H, A)."""
  layers = translation_model.TranslationLayers(
      50, 1, 16, 40, num_heads=4, atten_dim=32)
  ids = [[2, 5]] * 3 + [[2, 7]] * 4
  with tf.Graph().as_default() as graph:
    args = [tf.ones(shape, tf.int32) for shape in ids]
    shapes = [tshape.Shape(shape) for shape in ids]
    for p in layers:
      before = len(graph.get_operations())
      args = p.Instantiate().FPropDefaultTheta(*args)
      products = [op for op in graph.get_operations()[before:]
                  if op.type in ('MatMul', 'BatchMatMulV2', 'Einsum')]
      flops, uncounted = flop_counts.Count(
          products, called_functions.Scope(None))
      meta = p.cls.FPropMeta(p, *shapes)
      assert not uncounted
      if products:
        assert meta.flops == flops, p.name
      shapes = meta.out_shapes
      assert [list(s) for s in shapes] == [x.shape.as_list() for x in args]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
