"""Accumulators of a pipeline that runs twice in a step, as with two replicas."""

import sys

import lingvo.compat as tf
from lingvo.core import bn_layers
from lingvo.core import py_utils
import numpy as np
import pytest

import lingvo_gpipe
from lingvo_gpipe import graph_walk
from lingvo_gpipe import stacked_recurrent

_DIM = 3


@pytest.mark.parametrize('recompute', stacked_recurrent.RECOMPUTE_MODES)
def testTheSecondRunAddsToTheFirstAndDoesNotWaitForIt(devices, recompute):
  values = [np.random.RandomState(seed).randn(8, 2, 2, _DIM).astype(np.float32) for seed in range(2)]
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(2):
    py_utils.GetOrCreateGlobalStepVar()
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='pipeline', num_stages=2, num_micro_batches=2, recompute=recompute, layers=[
            bn_layers.BatchNormLayerNoPadding.Params().Set(name=f'norm_{i}', dim=_DIM) for i in range(2)]).Instantiate()
    inputs = [tf.constant(x) for x in values]
    outputs = [net.FPropDefaultTheta(x) for x in inputs]
    grads = [tf.gradients(tf.reduce_sum(tf.square(y)), x)[0] for x, y in zip(inputs, outputs)]
    sums = dict(net.GetAccumulatorValues().FlattenItems())
  assert inputs[0].op in graph_walk.Needed([outputs[0], grads[0]])
  assert inputs[0].op not in graph_walk.Needed([outputs[1], grads[1]])
  found, _ = devices.Run(graph, 2, [sums, grads])
  first = {key.rpartition('.')[2]: x for key, x in found.items() if 'norm_0' in key}
  np.testing.assert_allclose(first['counts'], 2 * 8 * 2 * 2)
  np.testing.assert_allclose(first['mean_ss'], sum(x.sum((0, 1, 2)) for x in values), rtol=1e-4, atol=1e-5)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
