"""What a plan says of a step's time and memory, held against training steps on this machine.

  python -m benchmarks.plan_reality

writes build/plan.json, a list of objects with the keys kind (`time` or `memory`), workload, schedule, recompute,
micro_batches, boundaries, predicted and measured (seconds, or bytes). An idle machine is needed for the times; they
take six minutes. plan_document.py makes a page of them.
"""

import dataclasses
import json
import pathlib
import statistics
import sys

from absl import app
from absl import flags

from benchmarks import cases
from benchmarks import client
from benchmarks import measure
from benchmarks import workloads
from lingvo_gpipe import cost_model
from lingvo_gpipe.planning import candidate

_OUTPUT = flags.DEFINE_string('output', 'build/plan.json', 'The file to write. What it has of the other kind is kept.')
_KIND = flags.DEFINE_enum('kind', 'all', ['all', 'time', 'memory'], 'What to measure.')
_ROUNDS = flags.DEFINE_integer('rounds', 30, 'How often layers are timed, and then each case has its turn.', lower_bound=1)

_STAGES = 2
# A process without activations to speak of: its memory is that of TensorFlow and its graph.
_BASE = cases.Case('residual:16:8', 'gpipe', 'gpipe', 'never', _STAGES, 8)


def _Case(workload, schedule, recompute, micro_batches):
  return cases.Case(workload, 'gpipe', schedule, recompute, _STAGES, micro_batches)


def TimeCases():
  """Other modes, numbers of micro-batches, schedules and cuts of the same work."""
  return [
      _Case('residual', 'gpipe', 'always', 8),
      _Case('residual', 'gpipe', 'never', 8),
      _Case('residual', 'gpipe', 'always', 2),
      _Case('residual', 'gpipe', 'never', 2),
      _Case('residual', '1f1b', 'never', 8),
      _Case('residual:8:64:3', 'gpipe', 'never', 8),
      _Case('residual:8:64:2', 'gpipe', 'never', 8),
  ]


def MemoryCases():
  """Memory grows with what is kept and with the micro-batch's size."""
  return [
      _Case('residual:16:512', schedule, recompute, m)
      for schedule, recompute in (('gpipe', 'always'), ('gpipe', 'selective'), ('gpipe', 'never'), ('1f1b', 'never'))
      for m in (8, 16)
  ]


class LayerTimer:
  """Measures the layers of a workload, by a process on each core at once, as cores are busy in a pipeline too."""

  def __init__(self, workload):
    self._workers = []
    for core in range(_STAGES):
      with client.OnCore(core):
        self._workers.append(client.Worker(sys.executable, 'benchmarks.plan_costs', workload))

  def __enter__(self):
    return self

  def __exit__(self, *unused_args):
    for worker in self._workers:
      worker.Kill()

  def Costs(self, micro_batches):
    """The LayerCost of each layer, of whose times the means count."""
    for worker in self._workers:
      worker.Send(str(micro_batches))
    answers = [[cost_model.LayerCost(**c) for c in worker.Costs()] for worker in self._workers]
    return [
        dataclasses.replace(
            layer[0], **{name: statistics.mean(getattr(c, name) for c in layer)
                         for name in ('forward_seconds', 'backward_seconds')}) for layer in zip(*answers)
    ]


def Plan(case, costs):
  """The candidate.Plan of a case; stages are virtual devices of one CPU with a core each."""
  workload = workloads.Get(case.workload)
  devices = candidate.Devices([float('inf')] * _STAGES, [1.] * _STAGES, float('inf'), cores=_STAGES)
  planner = candidate.Planner(
      lambda unused_m: costs, workload.batch, 0., devices, rule=[workload.Balance(_STAGES)[0]])
  return planner.Make(candidate.Choice(_STAGES, case.micro_batches, case.recompute, case.schedule))


def _Result(kind, case, plan, predicted, measured):
  return dict(
      kind=kind, workload=case.workload, schedule=case.schedule, recompute=case.recompute,
      micro_batches=case.micro_batches, boundaries=plan.boundaries, predicted=predicted, measured=measured)


def MeasureTimes():
  """A dict for each of TimeCases.

  In each round layers are timed and then steps, so that a machine whose speed drifts is as unkind to one as to the other.
  """
  wanted = TimeCases()
  costs = []  # Of each round, {micro_batches: LayerCosts}.
  with LayerTimer('residual') as timer:
    measurements, absent = measure.MeasureGroup(
        wanted, _ROUNDS.value, 3, 1., client.Start,
        before_round=lambda: costs.append({m: timer.Costs(m) for m in sorted({c.micro_batches for c in wanted})}))
  if absent:
    raise client.Failed(f'These could not be measured: {absent}')
  return [_OfRounds(m, [Plan(m.case, c[m.case.micro_batches]) for c in costs]) for m in measurements]


def _OfRounds(measurement, plans):
  """The result of a Measurement and the Plan of each of its rounds.

  The prediction is as far from the measured median as, at the median, each round's is from its own steps.
  """
  measured = [statistics.median(times) for times in measurement.rounds]
  ratio = statistics.median(p.step_seconds / m for p, m in zip(plans, measured))
  median = statistics.median(measured)
  return _Result('time', measurement.case, plans[0], median * ratio, median)


def _PeakBytes(case):
  """The most memory that a process ever had that ran some steps of a case."""
  worker = client.Start(case, timeout=900)
  try:
    worker.Ready()
    worker.Send('steps 1')
    worker.Times()
    return worker.Quit() * 2**20
  finally:
    worker.Kill()


def MeasureMemory():
  """A dict for each of MemoryCases; what is measured is beyond the memory of TensorFlow itself."""
  base = statistics.median(_PeakBytes(_BASE) for _ in range(3))
  results = []
  for case in MemoryCases():
    with LayerTimer(case.workload) as timer:
      plan = Plan(case, timer.Costs(case.micro_batches))
    predicted = sum(s.total_bytes for s in plan.stages)
    results.append(_Result('memory', case, plan, predicted, _PeakBytes(case) - base))
    print(results[-1], flush=True)
  return results


def Main(argv):
  del argv
  output = pathlib.Path(_OUTPUT.value)
  results = json.loads(output.read_text()) if output.exists() else []
  for kind, measure_all in (('time', MeasureTimes), ('memory', MeasureMemory)):
    if _KIND.value in ('all', kind):
      results = [r for r in results if r['kind'] != kind] + measure_all()
  output.parent.mkdir(parents=True, exist_ok=True)
  output.write_text(json.dumps(results, indent=1) + '\n')
  for r in results:
    print(f"{r['kind']:7} {r['schedule']:5} {r['recompute']:9} {r['micro_batches']:3} {r['boundaries']} "
          f"predicted {r['predicted']:.4g} measured {r['measured']:.4g}: {r['predicted'] / r['measured'] - 1:+.1%}")


if __name__ == '__main__':
  app.run(Main)
