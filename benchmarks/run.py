"""Measures this project beside its peers: a table, and build/bench.json.

  python -m benchmarks.run --quick

Each implementation is a process of its own that stays alive; they take turns, round after round, so that a machine
whose speed drifts is as unkind to one as to the other.
"""

import json
import os
import pathlib
import sys

from absl import app
from absl import flags

from benchmarks import cases
from benchmarks import client
from benchmarks import report

_QUICK = flags.DEFINE_bool('quick', False, 'Only the residual blocks with 2 stages and 8 micro-batches.')
_ROUNDS = flags.DEFINE_integer('rounds', 6, 'How often each implementation has its turn.', lower_bound=1)
_STEPS = flags.DEFINE_integer('steps', 3, 'How many steps a turn has.', lower_bound=1)
_OUTPUT = flags.DEFINE_string('output', 'build/bench.json', 'The file to write.')


def MeasureGroup(group, rounds, steps, logs, start=client.Start):
  """Measures cases side by side.

  Args:
    group: A list of cases.
    rounds: How often each has its turn.
    steps: How many steps a turn has.
    logs: The folder, a pathlib.Path, for what the workers say.
    start: Starts the worker of a case, given the case and its log.

  Returns:
    (a list of Measurements; of the cases that could not be measured, {case: why}).
  """
  workers, absent, measurements = {}, {}, {}
  try:
    # One starts after the other, so that graphs are built on an idle machine.
    for case in group:
      try:
        workers[case] = start(case, log=logs / f'{"-".join(map(str, case))}.log')
        ready = workers[case].Ready()
        measurements[case] = report.Measurement(case, ready['build_s'], ready['loss'], [])
      except client.Missing as e:
        absent[case] = f'missing: {e}'
      except client.Failed as e:
        absent[case] = f'failed: {e}'
    for _ in range(rounds):
      for case in list(measurements):
        try:
          workers[case].Send(f'steps {steps}')
          measurements[case].rounds.append(workers[case].Times())
        except client.Failed as e:
          del measurements[case]
          absent[case] = f'failed: {e}'
    for case in list(measurements):
      try:
        measurements[case].peak_mb = workers[case].Quit()
      except client.Failed as e:
        del measurements[case]
        absent[case] = f'failed: {e}'
  finally:
    for worker in workers.values():
      worker.Kill()
  return list(measurements.values()), absent


def Main(argv):
  del argv
  output = pathlib.Path(_OUTPUT.value)
  logs = output.parent / 'bench_logs'
  logs.mkdir(parents=True, exist_ok=True)
  entries, ok = {}, True
  for group in cases.QuickGroups() if _QUICK.value else cases.AllGroups():
    measurements, absent = MeasureGroup(group, _ROUNDS.value, _STEPS.value, logs)
    print(report.Table(measurements, absent), end='\n\n', flush=True)
    none = report.Find(measurements, 'none')
    for m in measurements:
      # Without a pipeline there is nothing new in each group: its first measurement stays.
      entries.setdefault(m.case, report.Entry(m, none))
    for case, loss in report.WrongLosses(measurements).items():
      ok = False
      print(f'{cases.Label(case)}: the first loss, {loss}, is not that of the others.')
    ok = ok and not any(why.startswith('failed') for why in absent.values())
    # After each group, so that what a long run has measured is not lost with it.
    scratch = output.with_suffix('.tmp')
    scratch.write_text(json.dumps(list(entries.values()), indent=1) + '\n')
    os.replace(scratch, output)
  print(f'Written to {output}')
  sys.exit(0 if ok else 1)


if __name__ == '__main__':
  app.run(Main)
