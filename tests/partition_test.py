"""Partitions: the rules by name, and the layers that they cut."""

import sys

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import builder_layers
from lingvo.core import py_utils
from lingvo.core import tshape
import pytest

import lingvo_gpipe
from lingvo_gpipe import partition
from lingvo_gpipe.layers import residual_block
from tests import toy_layers


@pytest.mark.parametrize('costs,k,expected', [
    ([1] * 16, 2, [8, 8]),  # Lingvo: 7 and 9.
    ([1] * 16, 4, [4, 4, 4, 4]),  # Lingvo: 3, 4, 4, 5.
    ([10, 1, 1], 3, [1, 1, 1]),  # Lingvo: two of three are empty.
    ([0, 0, 0], 2, None),
])
def testWhereLingvoIsUneven(costs, k, expected):
  lengths = [b - a for a, b in partition.Partition(costs, k)]
  assert lengths == (expected or lengths) and min(lengths) > 0


def testRules():
  costs = [2, 2, 1, 2, 1, 1, 1]
  assert [partition.Partition(costs, 3, rule) for rule in partition.RULES + ([1, 2],)] == [
      [(0, 2), (2, 4), (4, 7)], [(0, 2), (2, 4), (4, 7)],
      [(0, 1), (1, 3), (3, 7)], [(0, 1), (1, 2), (2, 7)]]


def _Dense(name):
  return toy_layers.Dense.Params().Set(name=name)


def testFlattensSequencesAndRepeats():
  seq = builder_layers.SequentialLayer.Params().Set(
      name='seq', repeat=2, sub=[_Dense('a'), _Dense('b')])
  cell = lingvo_gpipe.FeatureExtractionLayer.Params().Set(
      name='cell', sub=[seq, _Dense('c')])
  assert [p.name for p in partition.Flatten([cell, _Dense('d')])] == [
      'a_000', 'b_000', 'a_001', 'b_001', 'c', 'd']


def testPartitionSequentialLayers():
  stages = lingvo_gpipe.PartitionSequentialLayers(
      [_Dense(n) for n in 'abc'], 2, tshape.Shape([8, 4]))
  assert [s.name for s in stages] == ['d0', 'd1']
  assert [[p.name for p in s.sub] for s in stages] == [
      ['cell_000'], ['cell_001', 'cell_002']]


def testRepeatedLayersOfAPipeline():
  seq = builder_layers.SequentialLayer.Params().Set(
      name='seq', repeat=3, sub=[_Dense('a')])
  with tf.Graph().as_default():
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='p', layers=[seq], num_stages=3).Instantiate()
  assert [s.layers for s in net.stages] == [
      ['a_000'], ['a_001'], ['a_002']]


@pytest.mark.parametrize('names', [['a', 'b', 'a'], ['', 'b', 'c']])
def testWithoutNamesThatTellThemApartTheyAreNamedByPlace(names):
  layers = [_Dense(name) for name in names]
  assert [p.name for p in partition.NamedLayers(layers)] == [
      'cell_000', 'cell_001', 'cell_002']
  assert [p.name for p in layers] == names  # The caller's are as they were.


def testTheLayersOfAPartitionAreTheCallersOwn():
  block = residual_block.ResidualBlock.Params().Set(
      name='a', input_dim=4, dim=4)
  seq = builder_layers.SequentialLayer.Params().Set(
      name='seq', repeat=2, sub=[block])
  first, second = lingvo_gpipe.PartitionSequentialLayers(
      seq, 2, tshape.Shape([2, 8, 8, 4]))
  first.sub[0].norm_tpl.decay = .5
  assert second.sub[0].norm_tpl.decay != .5 and block.norm_tpl.decay != .5


def testCostsComeFromTheShapes():
  small, large = [
      partition.Costs([_Dense('a'), _Dense('b')], tshape.Shape([n, 4]))
      for n in (8, 80)
  ]
  assert small[0] == small[1] > 2 * 8 * 4 * 4
  assert large[0] > 9 * small[0]


def testShapesAloneDoWhereALayerWantsIntegers():

  class OneHot(base_layer.BaseLayer):

    def FProp(self, theta, ids):
      return tf.one_hot(ids, 4)

    @classmethod
    def FPropMeta(cls, p, ids):
      return py_utils.NestedMap(
          flops=7, out_shapes=(tshape.Shape([*ids, 4]),))

  ids = OneHot.Params().Set(name='a')
  assert partition.Costs([ids, _Dense('b')], tshape.Shape([8])) == [7., 32.]


def testLayerWithoutCosts():
  p = toy_layers.MapConv.Params().Set(name='bare')
  p.cls = type('Bare', (toy_layers.base_layer.BaseLayer,), {})
  with pytest.raises(ValueError, match="'cell_000' of class Bare .* does not run on"):
    lingvo_gpipe.PartitionSequentialLayers([p], 1, tshape.Shape([8, 4]))


@pytest.mark.parametrize('k,match', [(3, 'num_stages=3 is more than the 2'),
                                     (0, 'positive integer'),
                                     ('2', 'positive integer')])
def testRefusals(k, match):
  with pytest.raises(ValueError, match=match):
    partition.Partition([1, 1], k)


def testUnknownRule():
  with pytest.raises(ValueError, match="partition is 'best'; choose one of min_max"):
    partition.Partition([1, 1], 2, 'best')


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
