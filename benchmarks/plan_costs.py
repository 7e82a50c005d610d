"""A worker process that measures what a workload's layers cost on one core.

  python -m benchmarks.plan_costs residual

It reads numbers of micro-batches from the standard input, one a line, and answers each with a line of JSON, {"costs":
[...]}, a dict for each layer: the fields of its LayerCost, but for what comes out. client.py is the other end.
"""

import dataclasses
import sys

from benchmarks import tf_layers
from benchmarks import tf_step
from benchmarks import worker
from benchmarks import workloads
from lingvo_gpipe import cost_model
from lingvo_gpipe import timed_costs


def Main(name):
  """Serves until the end of the input."""
  answer = worker.Answers()
  tf_step.SwitchToGraphs()
  worker.Pin(0, 1)
  workload = workloads.Get(name)
  for line in sys.stdin:
    inputs = cost_model.MicroBatch([[workload.batch, *workload.input_shape]], int(line))
    with tf_step.Cluster(1):
      costs = timed_costs.LayerCosts(tf_layers.Layers(workload), *inputs, session_config=tf_step.SessionConfig(1))
    answer(costs=[dataclasses.asdict(dataclasses.replace(c, outputs=None)) for c in costs])


if __name__ == '__main__':
  Main(sys.argv[1])
