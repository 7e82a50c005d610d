"""Lingvo's run-time counts of FLOPs (core/computation_cost.py) of layers in a pipeline."""

import sys

import lingvo.compat as tf
from lingvo.core import computation_cost
from lingvo.core import py_utils
import pytest

import lingvo_gpipe
from lingvo_gpipe.layers import image_layers

_K, _M, _BATCH, _SIZE, _CHANNELS = 2, 4, 8, 6, 3
_FLOPS = 2 * _BATCH * _SIZE * _SIZE * 3 * 3 * _CHANNELS * _CHANNELS


def _Build(devices, counted):
  """(graph, the counts of two convolutions)."""
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(_K):
    py_utils.GetOrCreateGlobalStepVar()
    net = lingvo_gpipe.PipeliningLayer.Params().Set(
        name='net', num_micro_batches=_M, num_stages=_K,
        layers=[image_layers.Conv(f'conv{i}', 3, _CHANNELS, _CHANNELS) for i in range(2)]).Instantiate()
    convolutions = [net.children[f'd{i}'].children[f'conv{i}'] for i in range(2)]
    if counted:
      computation_cost.Prepare(net)
    inputs = tf.ones([_BATCH, _SIZE, _SIZE, _CHANNELS])
    outputs = net.FPropDefaultTheta(inputs)
    grads = tf.gradients(outputs, tf.trainable_variables())
    assert None not in grads
    return graph, [computation_cost.Get(c, 'flops') for c in convolutions] if counted else []


def testAreThoseOfTheWholeBatchWherePrepared(devices):
  graph, counts = _Build(devices, counted=True)
  assert devices.Run(graph, _K, counts) == [_FLOPS, _FLOPS]


def testTakeNoOperationsElsewhere(devices):
  graph, _ = _Build(devices, counted=False)
  assert not [op.name for op in graph.get_operations() if op.type == 'FloorDiv' and 'conv' in op.name]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
