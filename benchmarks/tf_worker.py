"""The worker of the TensorFlow implementations: no pipeline, this project, and lingvo.core.gpipe.

  python -m benchmarks.tf_worker '["residual", "gpipe", "gpipe", "always", 2, 8]'
"""

import json
import sys

from benchmarks import cases
from benchmarks import tf_step
from benchmarks import worker


class _Trainer(worker.Trainer):
  """One session and its training step."""

  def __init__(self, case):
    step = tf_step.TrainingStep(case, tf_step.Devices('/job:localhost', case.stages))
    self.build_s = step.build_s
    worker.Pin(0, case.stages)
    self._run = step.Start('', tf_step.SessionConfig(case.stages))

  def Step(self):
    return float(self._run()[0])


if __name__ == '__main__':
  worker.Serve(lambda: _Trainer(cases.Case(*json.loads(sys.argv[1]))))
