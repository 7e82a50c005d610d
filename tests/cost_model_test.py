"""Costs of layers against counts by hand, and what tracing must not touch."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import batch_major_attention
from lingvo.core import bn_layers
from lingvo.core import layers
from lingvo.core import py_utils
from lingvo.core import rnn_cell
from lingvo.core import rnn_layers
from lingvo.core import tshape
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import cost_model
from lingvo_gpipe import layer_graph
from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers import residual_block
from lingvo_gpipe.layers import resnet
from tests import toy_layers

_T = tf.TensorSpec


def _Near(value, by_hand, slack):
  """Not below the count by hand, and by no more than a share above."""
  assert by_hand <= value <= by_hand * (1 + slack), (value, by_hand)


def _WithoutMeta(params):
  """Params of a layer that doesn't say what it costs."""

  def FPropMeta(cls, *args):
    raise NotImplementedError(cls)

  bare = params.Copy()
  bare.cls = type('Bare', (params.cls,), {'FPropMeta': classmethod(FPropMeta)})
  return bare


def _Shapes(cost):
  return [x and x.shape.as_list() for x in py_utils.Flatten(cost.outputs)]


def testConvolution():
  p = image_layers.Conv('conv', 3, 5, 7, stride=2)
  cost = cost_model.Trace(p, [2, 8, 6, 5])
  multiply_adds = (2 * 4 * 3 * 7) * (3 * 3 * 5)
  assert cost.forward_flops == 2 * multiply_adds
  assert cost.backward_flops == 2 * cost.forward_flops
  assert cost.num_params == 3 * 3 * 5 * 7 and cost.param_bytes == 4 * 315
  assert cost.input_bytes == cost.kept_bytes == 4 * 2 * 8 * 6 * 5
  assert cost.output_bytes == 4 * 2 * 4 * 3 * 7
  assert _Shapes(cost) == [[2, 4, 3, 7]]


def testDense():
  p = layers.FCLayer.Params().Set(name='fc', input_dim=16, output_dim=8)
  cost = cost_model.Trace(_WithoutMeta(p), [4, 16])
  product = 2 * 4 * 16 * 8
  assert cost.source == 'traced' and not cost.uncounted
  assert cost.forward_flops == product + 4 * 8 + 4 * 8  # Bias, ReLU.
  # ReLU, bias summed over the batch, input, weight.
  assert cost.backward_flops == 4 * 8 + (4 - 1) * 8 + 2 * product
  assert cost.num_params == 16 * 8 + 8
  # ReLU's gradient takes what ReLU gave.
  assert cost.kept_bytes == 4 * (4 * 16 + 4 * 8)
  # The input, its gradient, the output's, the weight's.
  assert cost.peak_bytes == 4 * (2 * 4 * 16 + 4 * 8 + 16 * 8)


def testAttention():
  b, t, d, n = 2, 96, 512, 4
  p = batch_major_attention.MultiHeadedAttention.Params().Set(
      name='atten', input_dim=d, hidden_dim=d, num_heads=n)
  x = _T([b, t, d])
  cost = cost_model.Trace(_WithoutMeta(p), x, x, x, _T([b, t]))
  products = 4 * (2 * b * t * d * d) + 2 * (2 * b * t * t * d)
  _Near(cost.forward_flops, products, 0.02)
  # Twice as much: each product has two inputs.
  _Near(cost.backward_flops, 2 * products, 0.02)
  # The weights, a bias each, a scale for each of a head's dimensions.
  assert cost.num_params == 4 * d * d + 4 * d + d // n
  # At least the input, the heads of query, key, value and result, and the
  # probabilities.
  assert cost.kept_bytes >= 4 * (5 * b * t * d + b * n * t * t)
  assert _Shapes(cost) == [[b, t, d], [b, n, t, t]]


def testTransformersPlaceholderIsNotBelieved():
  b, t, d, hidden = 2, 64, 256, 1024
  p = batch_major_attention.TransformerDecoderLayer.Params().Set(
      name='layer', input_dim=d, num_heads=4, has_aux_atten=False)
  p.tr_fflayer_tpl.hidden_dim = hidden
  cost = cost_model.Trace(p, _T([b, t, d]), _T([b, t]))
  products = 4 * (2 * b * t * d * d) + 2 * (2 * b * t * t * d) + 2 * (
      2 * b * t * d * hidden)
  assert cost.source == 'traced'
  _Near(cost.forward_flops, products, 0.03)
  # Weights of three dimensions are summed over the batch.
  _Near(cost.backward_flops, 2 * products, 0.05)
  weights = 4 * d * d + 2 * d * hidden
  _Near(cost.num_params, weights, 0.01)


def testRecurrentLoop():
  time, batch, nodes, inputs = 10, 16, 64, 32
  cell = rnn_cell.LSTMCellSimple.Params().Set(
      name='cell', num_input_nodes=inputs, num_output_nodes=nodes)
  p = rnn_layers.FRNN.Params().Set(name='rnn', cell=cell)
  specs = _T([time, batch, inputs]), _T([time, batch, 1])
  cost = cost_model.Trace(p, *specs)
  products = time * 2 * batch * (inputs + nodes) * 4 * nodes
  assert not cost.uncounted
  # Bias 4, gates 4, state 3 and 1, tanh and its product: some 15 a node.
  _Near(cost.forward_flops, products, 0.11)
  # Lingvo's Recurrent runs the cell again for the gradient.
  _Near(cost.backward_flops, 3 * products, 0.16)
  assert cost.num_params == (inputs + nodes) * 4 * nodes + 4 * nodes
  # The states of all steps are kept.
  assert cost.kept_bytes > 4 * time * batch * (inputs + 2 * nodes)


def testEmbedding():
  p = layers.SimpleEmbeddingLayer.Params().Set(
      name='emb', vocab_size=100, embedding_dim=8)
  cost = cost_model.Trace(p, _T([4, 6], tf.int32))
  assert cost.forward_flops == 0
  assert cost.backward_flops == 4 * 6 * 8  # Rows added up.
  assert cost.num_params == 100 * 8
  assert cost.input_bytes == cost.kept_bytes == 4 * 4 * 6
  assert _Shapes(cost) == [[4, 6, 8]]


def testEmbeddingLayerOfShards():
  p = layers.EmbeddingLayer.Params().Set(
      name='emb', vocab_size=100, embedding_dim=8, max_num_shards=1)
  p.cls = type('Lookup', (layers.EmbeddingLayer,), {
      'FProp': lambda self, theta, ids: self.EmbLookup(theta, ids)})
  cost = cost_model.Trace(p, _T([4, 6], tf.int32))
  assert cost.num_params == 100 * 8 and _Shapes(cost) == [[4, 6, 8]]
  assert cost.backward_flops >= 4 * 6 * 8


class _Logits(layers.SimpleFullSoftmax):
  """Gives the loss of each example."""

  def FProp(self, theta, x, ids):
    return super().FProp(
        theta, x, tf.ones([x.shape[0]]), class_ids=ids).per_example_xent


def testSoftmax():
  batch, dim, classes = 6, 32, 1000
  p = layers.SimpleFullSoftmax.Params().Set(
      name='softmax', input_dim=dim, num_classes=classes)
  p.cls = _Logits
  cost = cost_model.Trace(p, [batch, dim], _T([batch, 1], tf.int32))
  product = 2 * batch * dim * classes
  # Bias 1, cross-entropy with its gradient 6.
  _Near(cost.forward_flops, product + 7 * batch * classes, 0.001)
  # That gradient scaled; the bias's, summed over the batch.
  _Near(cost.backward_flops, 2 * product + (2 * batch - 1) * classes, 0.001)
  assert cost.num_params == dim * classes + classes
  assert cost.kept_bytes >= 4 * batch * (dim + classes)


@pytest.mark.parametrize('cls,forward,backward', [
    # Mean 1, sum of squared differences 3, scale 1, shift 1; paddings.
    (bn_layers.BatchNormLayer, 6, 10),
    # Sums of values 1 and of squares 2, scale 1, shift 1.
    (bn_layers.BatchNormLayerNoPadding, 5, 8),
])
def testBatchNorm(cls, forward, backward):
  p = cls.Params().Set(name='bn', dim=7)
  cost = cost_model.Trace(_WithoutMeta(p), [8, 16, 25, 7])
  elements = 8 * 16 * 25 * 7
  assert not cost.uncounted and cost.num_params == 4 * 7
  _Near(cost.forward_flops, forward * elements, 0.17)
  _Near(cost.backward_flops, backward * elements, 0.12)
  assert _Shapes(cost) == [[8, 16, 25, 7]]


class _Says(toy_layers.Dense):
  """Says that it takes so many FLOPs."""
  flops = 0

  @classmethod
  def FPropMeta(cls, p, x):
    return py_utils.NestedMap(flops=cls.flops, out_shapes=(x,))


@pytest.mark.parametrize('share,source', [(0.4, 'traced'), (0.6, 'declared'),
                                          (1.9, 'declared'), (2.1, 'traced')])
def testFPropMetaIsBelievedWhereItIsPlausible(share, source):
  p = toy_layers.Dense.Params().Set(name='dense')
  counted = cost_model.Trace(_WithoutMeta(p), [8, 4])
  p.cls = type('Says', (_Says,), {'flops': share * counted.forward_flops})
  cost = cost_model.Trace(p, [8, 4])
  assert cost.source == source
  assert cost.backward_flops == counted.backward_flops
  assert cost.forward_flops == counted.forward_flops * (
      share if source == 'declared' else 1)


@pytest.mark.parametrize('layer', resnet.ResNetLayers(50, 1000)[::5],
                         ids=lambda p: p.name)
def testResNetsLayersSayTheTruth(layer):
  dim = getattr(layer, 'input_dim', None)
  shape = [4, 32, 32, dim or 3] if layer.name != 'head' else [4, 8, 8, 2048]
  assert cost_model.Trace(layer, shape).source == 'declared'


class _Scaled(base_layer.BaseLayer):

  def FProp(self, theta, x):
    return (x * 2. + 1.) * 3.


def testElementwiseOperatorsWriteOverTheirInput():
  cost = cost_model.Trace(_Scaled.Params().Set(name='scaled'), [8, 4])
  # The input, and one tensor that becomes the output or the gradient.
  assert cost.peak_bytes == 2 * 4 * 8 * 4
  assert cost.kept_bytes == 4 * 8 * 4


def testKeptAndPeakOfABlock():
  p = residual_block.ResidualBlock.Params().Set(
      name='block', input_dim=8, dim=8)
  tensor = 4 * 2 * 16 * 16 * 8
  cost = cost_model.Trace(p, [2, 16, 16, 8])
  # The inputs of two convolutions and two normalisations, the result of ReLU.
  assert 5 * tensor <= cost.kept_bytes <= 5.1 * tensor
  assert cost.kept_bytes <= cost.peak_bytes <= cost.kept_bytes + 4 * tensor


def testNoneIntegersAndTuples():
  p = toy_layers.Dense.Params().Set(name='dense')
  cost = cost_model.Trace(p, [8, 4], None, _T([3], tf.int32))
  assert cost.outputs == (_T([8, 4]), None, _T([3], tf.int32))
  assert cost.input_bytes == cost.output_bytes == 4 * (8 * 4 + 3)


def testNestedMaps():
  p = toy_layers.MapConv.Params().Set(name='conv')
  nmap = py_utils.NestedMap(vec=tshape.Shape([2, 8, 8, 1]), paddings=None)
  first, second = cost_model.LayerCosts([p, p.Copy().Set(name='b')], nmap)
  assert first.outputs.vec == _T([2, 8, 8, 1]) and first.outputs.paddings is None
  assert second.name == 'b' and second.forward_flops == first.forward_flops


def testEqualLayersAreTracedOnce(monkeypatch):
  traced = []
  trace = layer_graph.Trace
  monkeypatch.setattr(
      layer_graph, 'Trace', lambda p, *args: traced.append(p) or trace(p, *args))
  dense = [toy_layers.Dense.Params().Set(name=f'd{i}') for i in range(300)]
  dense[100].keep_prob = 0.5
  costs = cost_model.LayerCosts(dense, [8, 4])
  assert [p.name for p in traced] == ['d0', 'd100']
  assert [c.name for c in costs] == [p.name for p in dense]


def testNoWeightIsAllocated():
  # 400 GB, were it so.
  p = layers.FCLayer.Params().Set(
      name='fc', input_dim=10**6, output_dim=10**5)
  cost = cost_model.Trace(p, [1, 10**6])
  assert cost.param_bytes == 4 * (10**11 + 10**5)


def testWeightsOfOtherLayers():
  class Tied(base_layer.BaseLayer):

    def FProp(self, theta, x):
      return tf.matmul(x, theta.w, transpose_b=True)

  emb = toy_layers.Dense.Params().Set(name='emb')
  tied = Tied.Params().Set(name='tied')
  _, cost = cost_model.LayerCosts(
      [emb, tied], [8, 4], shared_weights={'tied.w': 'emb.w'})
  assert cost.num_params == 0
  assert cost.forward_flops == 2 * 8 * 4 * 4
  assert cost.backward_flops == 2 * cost.forward_flops
  with pytest.raises(ValueError, match="there is no layer 'embb'"):
    cost_model.LayerCosts(
        [emb, tied], [8, 4], shared_weights={'tied.w': 'embb.w'})


class _Unknown(base_layer.BaseLayer):

  def FProp(self, theta, x):
    return tf.linalg.inv(x) + tf.cast(tf.numpy_function(
        lambda: np.float32(1), [], tf.float32), x.dtype)


def testWhatIsNotCountedIsNamed():
  cost = cost_model.Trace(_Unknown.Params().Set(name='inv'), [3, 3])
  assert set(cost.uncounted) >= {'MatrixInverse'}


class _OneHot(base_layer.BaseLayer):

  def FProp(self, theta, ids):
    return tf.one_hot(ids, 4)


def testLayerThatDoesNotRunOnTheInputs():
  p = _OneHot.Params().Set(name='ids')
  assert _Shapes(cost_model.Trace(p, _T([8], tf.int32))) == [[8, 4]]
  with pytest.raises(ValueError, match=r"'ids' of class _OneHot .*on inputs "
                     r'float32\(8,\)(.|\n)*give a tf.TensorSpec'):
    cost_model.Trace(p, [8])


def _State():
  graph = tf.get_default_graph()
  return (graph.as_graph_def(),
          {key: list(graph.get_collection(key))
           for key in graph.get_all_collection_keys()},
          tf.get_variable_scope().name, graph.get_name_scope())


def testLeavesTheModelAlone():
  np.random.seed(1)
  numbers = np.random.get_state()[1].tolist()
  with tf.Graph().as_default() as graph, tf.variable_scope('scope'):
    graph.seed = 5
    tf.train.get_or_create_global_step()
    toy_layers.Dense.Params().Set(name='other').Instantiate()
    seed = py_utils.GetStepSeed()
    before = _State()
    p = toy_layers.Dense.Params().Set(name='dense', keep_prob=0.5)
    text = p.ToText()
    cost_model.LayerCosts([p, bn_layers.BatchNormLayer.Params().Set(
        name='bn', dim=4)], [8, 4])
    assert _State() == before
    assert py_utils.GetStepSeed() is seed and p.ToText() == text
  assert np.random.get_state()[1].tolist() == numbers


def _Pipeline(**kwargs):
  """(variable names and initial values, the layers of each stage)."""
  with tf.Graph().as_default() as graph:
    graph.seed = 5
    dense = [toy_layers.Dense.Params().Set(
        name=f'd{i}', params_init=py_utils.WeightInit.Gaussian())
             for i in range(3)]
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='net', layers=dense, num_stages=2, **kwargs).Instantiate()
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      values = {v.name: session.run(v).tolist() for v in net.vars.Flatten()}
  return values, [s.layers for s in net.stages]


def testAPipelinesVariablesAreTheSame():
  assert _Pipeline() == _Pipeline(input_shapes=[[8, 4]], num_micro_batches=2)


class _Ids(base_layer.BaseLayer):
  """Ids -> vectors; has no FPropMeta."""

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('emb', layers.SimpleEmbeddingLayer.Params().Set(
        vocab_size=9, embedding_dim=4))

  def FProp(self, theta, ids, weights):
    return self.emb.FProp(theta.emb, ids), weights


def testAPipelineNeedsNoFPropMeta():
  body = [_WithoutMeta(toy_layers.Dense.Params().Set(name=f'd{i}'))
          for i in range(4)]
  with tf.Graph().as_default():
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='net', layers=[_Ids.Params().Set(name='ids')] + body, num_stages=2,
        num_micro_batches=2,
        input_shapes=[_T([8], tf.int32), None]).Instantiate()
  first, second = net.stages
  assert first.layers == ['ids', 'd0', 'd1'] and second.layers == ['d2', 'd3']
  assert second.cost_share == pytest.approx(0.5, abs=0.05)


def testAMicroBatchIsWhatCounts():
  spec = cost_model.MicroBatch([[4, 10], None], 4, batch_dim=1)
  assert spec == (_T([4, 3]), None)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
