"""Measures what a workload's layers cost on one core, and prints it as JSON.

  python -m benchmarks.plan_costs residual 8
"""

import dataclasses
import json
import sys

from benchmarks import tf_layers
from benchmarks import tf_step
from benchmarks import worker
from benchmarks import workloads
from lingvo_gpipe import cost_model
from lingvo_gpipe import timed_costs


def Main(name, num_micro_batches):
  """Prints a list with a dict for each layer: the fields of its LayerCost, but for what comes out."""
  tf_step.SwitchToGraphs()
  worker.Pin(0, 1)
  workload = workloads.Get(name)
  inputs = cost_model.MicroBatch([[workload.batch, *workload.input_shape]], num_micro_batches)
  with tf_step.Cluster(1):
    costs = timed_costs.LayerCosts(tf_layers.Layers(workload), *inputs, session_config=tf_step.SessionConfig(1))
  print(json.dumps([dataclasses.asdict(dataclasses.replace(c, outputs=None)) for c in costs]))


if __name__ == '__main__':
  Main(sys.argv[1], int(sys.argv[2]))
