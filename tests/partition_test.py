"""Partition against brute force, and the layers it cuts."""

import itertools
import sys

import hypothesis
from hypothesis import strategies as st
import lingvo.compat as tf
from lingvo.core import builder_layers
from lingvo.core import tshape
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import partition
from tests import toy_layers


def _BruteForce(costs, k):
  """(largest stage, sum of squares) of the best cut."""
  best = None
  for inner in itertools.combinations(range(1, len(costs)), k - 1):
    cuts = (0,) + inner + (len(costs),)
    stages = [sum(costs[a:b]) for a, b in zip(cuts, cuts[1:])]
    score = (max(stages), sum(s * s for s in stages))
    best = score if best is None else min(best, score)
  return best


@hypothesis.given(
    st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 8))
def testIsTheBestCut(costs, k):
  k = min(k, len(costs))
  stages = partition.Partition(costs, k)
  assert [a for a, _ in stages] == [0] + [b for _, b in stages[:-1]]
  assert stages[-1][1] == len(costs) and all(a < b for a, b in stages)
  sums = [sum(costs[a:b]) for a, b in stages]
  assert (max(sums), sum(s * s for s in sums)) == _BruteForce(costs, k)


@pytest.mark.parametrize('costs,k,expected', [
    ([1] * 16, 2, [8, 8]),  # Lingvo: 7 and 9.
    ([1] * 16, 4, [4, 4, 4, 4]),  # Lingvo: 3, 4, 4, 5.
    ([10, 1, 1], 3, [1, 1, 1]),  # Lingvo: two of three are empty.
    ([0, 0, 0], 2, None),
])
def testWhereLingvoIsUneven(costs, k, expected):
  lengths = [b - a for a, b in partition.Partition(costs, k)]
  assert lengths == (expected or lengths) and min(lengths) > 0


def testManyLayers():
  costs = np.random.RandomState(0).rand(1000)
  stages = partition.Partition(costs, 64)
  assert len(stages) == 64


def _Dense(name):
  return toy_layers.Dense.Params().Set(name=name)


def testFlattensSequencesAndRepeats():
  seq = builder_layers.SequentialLayer.Params().Set(
      name='seq', repeat=2, sub=[_Dense('a'), _Dense('b')])
  cell = lingvo_gpipe.FeatureExtractionLayer.Params().Set(
      name='cell', sub=[seq, _Dense('c')])
  assert [p.name for p in partition.Flatten([cell, _Dense('d')])] == [
      'a', 'b', 'a', 'b', 'c', 'd']


def testPartitionSequentialLayers():
  stages = lingvo_gpipe.PartitionSequentialLayers(
      [_Dense(n) for n in 'abc'], 2, tshape.Shape([8, 4]))
  assert [s.name for s in stages] == ['d0', 'd1']
  assert [[p.name for p in s.sub] for s in stages] == [
      ['cell_000'], ['cell_001', 'cell_002']]


def testRepeatedLayersInAPipelineAreNamedByPlace():
  seq = builder_layers.SequentialLayer.Params().Set(
      name='seq', repeat=3, sub=[_Dense('a')])
  with tf.Graph().as_default():
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='p', layers=[seq], num_stages=3).Instantiate()
  assert [s.layers for s in net.stages] == [
      ['cell_000'], ['cell_001'], ['cell_002']]


def testCostsComeFromTheShapes():
  wide = toy_layers.Dense.Params().Set(name='wide', dim=16)
  costs = partition.Costs([wide, _Dense('b')], tshape.Shape([8, 4]))
  assert costs == [512., 32.]


def testLayerWithoutCosts():
  p = toy_layers.MapConv.Params().Set(name='bare')
  p.cls = type('Bare', (toy_layers.base_layer.BaseLayer,), {})
  with pytest.raises(ValueError, match="'cell_000' of class Bare has no FPropMeta"):
    lingvo_gpipe.PartitionSequentialLayers([p], 1, tshape.Shape([8, 4]))


@pytest.mark.parametrize('k,match', [(3, 'num_stages=3 is more than the 2'),
                                     (0, 'positive integer'),
                                     ('2', 'positive integer')])
def testRefusals(k, match):
  with pytest.raises(ValueError, match=match):
    partition.Partition([1, 1], k)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
