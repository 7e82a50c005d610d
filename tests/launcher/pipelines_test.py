"""Tests for finding pipelines and setting the flags' values in them."""
from lingvo.core import hyperparams
from lingvo.core import layers
import pytest

from lingvo_gpipe import pipelining_layer
from lingvo_gpipe.launcher import pipelines
from lingvo_gpipe.launcher import user_errors


def _Pipeline(**kwargs):
  return pipelining_layer.PipeliningLayer.Params().Set(**kwargs)


def _Tree():
  """Params with three pipelines: two at different depths, in a list and in a dict, and one twice."""
  encoder, decoder, head = _Pipeline(num_stages=2), _Pipeline(num_stages=3), _Pipeline()
  tree = hyperparams.Params()
  tree.Define('task', layers.FCLayer.Params(), '')
  tree.task.Define('parts', [layers.FCLayer.Params(), encoder], '')
  tree.task.Define('more', {'decoder': decoder, 'same': decoder}, '')
  tree.Define('head', head, '')
  return tree, [encoder, decoder, head]


def testFindParams():
  tree, expected = _Tree()
  found = pipelines.FindParams(tree)
  assert len(found) == 3
  assert all(any(f is e for e in expected) for f in found)
  assert pipelines.NumStages(tree) == 3
  assert pipelines.NumStages(layers.FCLayer.Params()) == 1


def testAPipelineInsideOfAnotherIsItsOwnBusiness():
  inner = _Pipeline(num_stages=5)
  outer = _Pipeline(num_stages=2, layers=[inner])
  pipelines.Configure(outer, 'a.Model', num_stages=3)
  assert (outer.num_stages, inner.num_stages) == (3, 5)


def testNumStagesOfCells():
  assert pipelines.NumStages(_Pipeline(cell_tpl=[layers.FCLayer.Params() for _ in range(4)])) == 4


def testConfigure():
  tree, found = _Tree()
  pipelines.Configure(tree, 'a.Model')
  assert [p.num_stages for p in found] == [2, 3, 1]
  pipelines.Configure(tree, 'a.Model', num_stages=4, num_micro_batches=8, recompute='never')
  assert {(p.num_stages, p.num_micro_batches, p.recompute) for p in found} == {(4, 8, 'never')}


@pytest.mark.parametrize('text, value, num_stages', [('histogram', 'histogram', 2), ('3,7', [3, 7], 3), ('2', [2], 2)])
def testPartition(text, value, num_stages):
  pipeline = _Pipeline(num_stages=2)
  pipelines.Configure(pipeline, 'a.Model', partition=text)
  assert (pipeline.partition, pipeline.num_stages) == (value, num_stages)


def testPartitionThatCannotBeRead():
  with pytest.raises(user_errors.UserError, match='--partition=even is neither one of min_max'):
    pipelines.Configure(_Pipeline(), 'a.Model', partition='even')


def testWithoutAPipeline():
  params = layers.FCLayer.Params()
  pipelines.Configure(params, 'a.Model')
  pipelines.Configure(params, 'a.Model', num_stages=1, num_micro_batches=1)
  message = 'a.Model has no PipeliningLayer.*--num_stages=2 or --recompute=never'
  with pytest.raises(user_errors.UserError, match=message):
    pipelines.Configure(params, 'a.Model', num_stages=2, recompute='never')


def testNumStagesAndCells():
  cells = _Pipeline(cell_tpl=[layers.FCLayer.Params() for _ in range(2)])
  pipelines.Configure(cells, 'a.Model', num_stages=2)
  with pytest.raises(user_errors.UserError, match='--num_stages=3.*cell_tpl lists 2'):
    pipelines.Configure(cells, 'a.Model', num_stages=3)
