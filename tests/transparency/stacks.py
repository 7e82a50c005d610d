"""The stacks of layers whose pipelines are compared, by name."""

import contextlib

import lingvo.compat as tf
from lingvo.core import layers
from lingvo.core import py_utils
import numpy as np

import lingvo_gpipe
from lingvo_gpipe.layers import image_layers
from tests.transparency import cells
from tests.transparency.harness import Stack

# Divisible by every number of micro-batches.
BATCH = 8
_DIM, _TIME, _VOCABULARY = 4, 3, 7


def _Several(cls, n=4, **kwargs):
  """A function that gives params of n such layers."""
  return lambda: [cls.Params().Set(name=f'layer_{i}', **kwargs) for i in range(n)]


def _X(rng, *shape):
  return rng.randn(*(shape or (BATCH, _DIM))).astype(np.float32)


def _Dropout():
  return Stack(_Several(cells.Dense, keep_prob=.6), lambda rng: [_X(rng)],
               by_micro_batch=True)


def _ConvolutionBatchNorm():
  """Convolutions with BatchNormLayers inside, and with paddings."""

  def Layers():
    conv = layers.Conv2DLayer.Params().Set(
        filter_shape=(3, 3, 2, 2), filter_stride=(1, 1), batch_norm=True,
        activation='RELU')
    return [conv.Copy().Set(name=f'conv_{i}') for i in range(2)] + [
        cells.Pool.Params().Set(name='pool'),
        cells.Dense.Params().Set(name='dense', dim=2)
    ]

  def Inputs(rng):
    lengths = rng.randint(2, 6, [BATCH, 1])
    return [_X(rng, BATCH, 5, 3, 2),
            (np.arange(5) >= lengths).astype(np.float32)]

  # Run one micro-batch after another, BatchNormLayer's moving averages aren't
  # those of the mini-batch: tests/batch_norm_test.py tests them.
  return Stack(Layers, Inputs, by_micro_batch=True, untrained=False)


def _ConvolutionBatchNormNoPadding():
  """Lingvo's normalisation and ours; the moving averages are compared too."""

  def Layers():
    conv = cells.Convolution.Params()
    return [
        conv.Copy().Set(name='conv_0'),
        conv.Copy().Set(name='conv_1', norm=image_layers.BatchNorm.Params()),
        cells.Dense.Params().Set(name='dense_0'),
        cells.Dense.Params().Set(name='dense_1'),
    ]

  return Stack(Layers, lambda rng: [_X(rng, BATCH, 5, 5, _DIM)],
               by_micro_batch=True)


def _Segments(rng):
  """Paddings and segment ids [batch, time], two segments in each example."""
  lengths = rng.randint(2, _TIME + 1, [BATCH, 1])
  first = rng.randint(1, _TIME, [BATCH, 1])
  time = np.arange(_TIME)
  return [(time >= lengths).astype(np.float32),
          (1 + (time >= first)).astype(np.int32)]


def _Transformer():
  """Ids and labels come in; logits and losses go out."""

  def Layers():
    return [cells.Embedding.Params().Set(name='embedding', dim=8)] + _Several(
        cells.Transformer, 2, dim=8)() + [
            cells.Softmax.Params().Set(name='softmax', dim=8)
        ]

  return Stack(Layers, lambda rng: [_Ids(rng)] + _Segments(rng) + [_Ids(rng)],
               by_micro_batch=True)


def _Ids(rng, *shape):
  return rng.randint(0, _VOCABULARY, shape or (BATCH, _TIME)).astype(np.int32)


def _EmbeddingSoftmax():
  """Ids come in, logits and losses go out; labels pass through every stage."""

  def Layers():
    return [cells.Embedding.Params().Set(name='embedding')] + _Several(
        cells.Dense, 2)() + [cells.Softmax.Params().Set(name='softmax')]

  return Stack(Layers, lambda rng: [_Ids(rng), _Ids(rng)])


def _Integers():

  def Inputs(rng):
    return [_X(rng), rng.randint(-9, 9, BATCH).astype(np.int32),
            rng.randint(2**40, 2**41, [BATCH, 1]), rng.rand(BATCH) > .5]

  return Stack(_Several(cells.Integers), Inputs)


def _Nones():
  """None comes in, and takes a tensor's place and gives it up between stages.

  The weights and inputs that nothing depends on have no gradient.
  """

  def Layers():
    some = _Several(cells.Optional)()
    some[1].drop_z = True
    some[2].fill_y = True
    return some

  return Stack(Layers, lambda rng: [_X(rng), None, _X(rng), _X(rng)])


def _NestedMaps():

  def Inputs(rng):
    return [py_utils.NestedMap(
        x=_X(rng), pair=[_X(rng), None],
        more=py_utils.NestedMap(y=_X(rng, BATCH), ids=_Ids(rng, BATCH)))]

  return Stack(_Several(cells.Nested), Inputs, nested=True)


def _Outputs():
  return Stack(lambda: _Several(cells.Dense, 3)() + [
      cells.Fan.Params().Set(name='fan')], lambda rng: [_X(rng)])


def _BatchDimOne():
  return Stack(_Several(cells.Dense, keep_prob=.6),
               lambda rng: [_X(rng, _TIME, BATCH, _DIM), _Ids(rng, _TIME, BATCH)],
               batch_dim=1, by_micro_batch=True)


def _HalfPrecision():
  """float32 weights; activations and boundaries in three dtypes by turns."""

  def Layers():
    return [
        cells.Cast.Params().Set(name=f'cast_{i}', to=dtype) for i, dtype in
        enumerate((tf.bfloat16, tf.float32, tf.float16, tf.float16))
    ]

  # By micro-batch: products are rounded to half precision before they are summed
  # over micro-batches, in float32, and so depend on the split.
  return Stack(Layers, lambda rng: [_X(rng)], by_micro_batch=True)


def _Skip():
  """A fetched activation goes from the first cell past two more to the last."""

  def Layers():
    return _Several(cells.Dense)() + [
        layers.FetchLayer.Params().Set(name='fetch'),
        cells.Combine.Params().Set(name='combine')
    ]

  def Cells():
    p = {p.name: p for p in Layers()}

    def Cell(i, *names, **kwargs):
      return lingvo_gpipe.FeatureExtractionLayer.Params().Set(
          name=f'cell_{i}', sub=[p[n] for n in names], **kwargs)

    return [
        Cell(0, 'layer_0', 'fetch', 'layer_1', act_fetch_layers=['fetch'],
             num_act_outputs=1),
        Cell(1, 'layer_2', num_act_inputs=1, num_act_outputs=1),
        Cell(2, 'layer_3', num_act_inputs=1, num_act_outputs=1),
        Cell(3, 'combine'),
    ]

  def Sequence(run, x):
    skipped = run('layer_0', x)
    x = run('layer_3', run('layer_2', run('layer_1', skipped)))
    return run('combine', x, skipped)

  return Stack(Layers, lambda rng: [_X(rng)], cells=Cells, sequence=Sequence)


@contextlib.contextmanager
def _TiedScope():
  """Layers created inside share the weights of embedding and softmax.

  Lingvo's own means, as its MultiTaskModel uses it: a variable whose name is
  rewritten to that of another one is that one.
  """
  with py_utils.OpportunisticVariableReuseScope(), py_utils.VariableRenameScope(
      [('softmax/shared/(.*)', 'embedding/shared/%s')]):
    yield


def _Tied():
  """The first and the last stage have the same weight."""

  def Layers():
    return [cells.SharedEmbedding.Params().Set(name='embedding')] + _Several(
        cells.Dense, 2)() + [cells.SharedSoftmax.Params().Set(name='softmax')]

  return Stack(Layers, lambda rng: [_Ids(rng)], scope=_TiedScope)


STACKS = dict(
    dropout=_Dropout(),
    convolution_batch_norm=_ConvolutionBatchNorm(),
    convolution_batch_norm_no_padding=_ConvolutionBatchNormNoPadding(),
    transformer=_Transformer(),
    embedding_softmax=_EmbeddingSoftmax(),
    integers=_Integers(),
    nones=_Nones(),
    nested_maps=_NestedMaps(),
    outputs=_Outputs(),
    batch_dim_1=_BatchDimOne(),
    half_precision=_HalfPrecision(),
    skip=_Skip(),
    tied=_Tied(),
)
