"""The worker that times the building of a case's graph: its step builds it anew.

  python -m benchmarks.build_worker '["resnet101", "gpipe", "gpipe", "always", 4, 8]'
"""

import json
import sys
import time

from benchmarks import cases
from benchmarks import tf_step
from benchmarks import worker


class _Builder(worker.Trainer):
  """Builds the graph of a training step, again and again."""

  def __init__(self, case):
    self._case = case

  def Step(self):
    """Builds the graph; the loss is its number of parameters, for the sake of a comparison."""
    return float(tf_step.TrainingStep(self._case, tf_step.Devices('/job:localhost', self._case.stages)).NumParams())

  def Steps(self, n):
    """As in the base class, but of the processor's time, which other processes hardly change: one thread builds."""
    times = []
    for _ in range(n):
      start = time.process_time()
      self.Step()
      times.append(time.process_time() - start)
    return times


if __name__ == '__main__':
  worker.Serve(lambda: _Builder(cases.Case(*json.loads(sys.argv[1]))))
