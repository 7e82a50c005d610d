"""Measures this project beside its peers: a table, and a list of JSON objects.

  python -m benchmarks.run --groups=quick
  python -m benchmarks.run --workloads=transformer,resnet50 --stages=2 --micro_batches=8

Each implementation is a process of its own that stays alive; they take turns, round after round, so that a machine
whose speed drifts is as unkind to one as to the other. (While they start, two work at a time; build_time.py times the
building of graphs with nothing beside it.)
"""

import json
import os
import pathlib
import sys

from absl import app
from absl import flags

from benchmarks import cases
from benchmarks import client
from benchmarks import measure
from benchmarks import report

_GROUPS = {
    'quick': cases.QuickGroups,
    'all': cases.AllGroups,
    'grpc': cases.ProcessGroups,
}
_WHICH = flags.DEFINE_enum(
    'groups', 'all', list(_GROUPS),
    'quick: the residual blocks with 2 stages and 8 micro-batches. all: every workload and size. grpc: a process a '
    'stage.')
_WORKLOADS = flags.DEFINE_list('workloads', None, 'Only these workloads. Default: all of the groups.')
_STAGES = flags.DEFINE_multi_integer('stages', None, 'Only this number of stages; may be given more than once.')
_MICRO_BATCHES = flags.DEFINE_multi_integer(
    'micro_batches', None, 'Only this number of micro-batches; may be given more than once.')
_ROUNDS = flags.DEFINE_integer('rounds', 6, 'How often each implementation has its turn.', lower_bound=1)
_STEPS = flags.DEFINE_integer('steps', 3, 'How many steps a turn has, at most.', lower_bound=1)
_TURN_SECONDS = flags.DEFINE_float('turn_seconds', 3., 'A turn has fewer steps where they would take longer than this.')
_TIMEOUT = flags.DEFINE_float(
    'timeout', 300., 'How many seconds an implementation has for its start or for a turn; then it counts as failed.')
_OUTPUT = flags.DEFINE_string('output', 'build/bench.json', 'The file to write.')
_RESUME = flags.DEFINE_bool('resume', False, 'Keep what the output file has, and measure only the groups it lacks.')


def _Start(logs):
  """What starts the worker of a case, given the folder for what the workers say."""

  def Start(case):
    name = '-'.join(map(str, case)).replace(':', '_')
    return client.Start(case, log=logs / f'{name}.log', timeout=_TIMEOUT.value)

  return Start


def _Key(entry):
  """What the entries of a group, but for those without a pipeline, have in common."""
  return entry['workload'], entry['stages'], entry['micro_batches']


def _Groups():
  """The groups that the flags choose."""
  for group in _GROUPS[_WHICH.value]():
    wanted = zip(_Key(group[-1]._asdict()), (_WORKLOADS.value, _STAGES.value, _MICRO_BATCHES.value))
    if all(chosen is None or value in chosen for value, chosen in wanted):
      yield group


def Main(argv):
  del argv
  output = pathlib.Path(_OUTPUT.value)
  logs = output.parent / 'bench_logs'
  logs.mkdir(parents=True, exist_ok=True)
  entries = json.loads(output.read_text()) if _RESUME.value and output.exists() else []
  done = {_Key(e) for e in entries if e['impl'] != 'none'}
  ok = True
  for group in _Groups():
    if _Key(group[-1]._asdict()) in done:
      continue
    measurements, absent = measure.MeasureGroup(
        group, _ROUNDS.value, _STEPS.value, _TURN_SECONDS.value, _Start(logs))
    print(report.Table(measurements, absent), end='\n\n', flush=True)
    entries += report.NewEntries(measurements, entries)
    for case, loss in report.WrongLosses(measurements).items():
      ok = False
      print(f'{cases.Label(case)}: the first loss, {loss}, is not that of the others.')
    ok = ok and not any(why.startswith('failed') for why in absent.values())
    # After each group, so that what a long run has measured is not lost with it.
    scratch = output.with_suffix('.tmp')
    scratch.write_text(json.dumps(entries, indent=1) + '\n')
    os.replace(scratch, output)
  print(f'Written to {output}')
  sys.exit(0 if ok else 1)


if __name__ == '__main__':
  app.run(Main)
