"""How long it takes to build the graph of a ResNet-101 pipeline, beside lingvo.core.gpipe for the same layers.

  python -m benchmarks.build_time
"""

import json
import sys

from absl import app
from absl import flags

from benchmarks import cases
from benchmarks import client
from benchmarks import measure
from benchmarks import report

_BUILDS = flags.DEFINE_integer('builds', 2, 'How often each graph is built, after twice to warm up.', lower_bound=1)


def _Start(case):
  return client.Worker(sys.executable, 'benchmarks.build_worker', json.dumps(case))


def Main(argv):
  del argv
  group = cases.BuildGroup()
  print(f'{group[0].workload}, {group[0].stages} stages, {group[0].micro_batches} micro-batches: building the graph')
  measurements, absent = measure.MeasureGroup(group, _BUILDS.value, 1, 1., _Start)
  lingvo = report.Find(measurements, 'lingvo')
  for m in measurements:
    share = f'{1 / report.Ratio(lingvo, m):.2f} of lingvo' if lingvo else ''
    print(f'{cases.Label(m.case):30} {m.StepSeconds():6.1f} s  {share}')
  for case, why in absent.items():
    print(f'{cases.Label(case):30} {why}')
  wrong = report.WrongLosses(measurements)
  for case, params in wrong.items():
    print(f'{cases.Label(case)}: it has {params:,.0f} parameters, and not as many as the others.')
  sys.exit(1 if absent or wrong else 0)


if __name__ == '__main__':
  app.run(Main)
