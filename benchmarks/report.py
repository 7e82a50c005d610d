"""From measured seconds to a table and a list of JSON objects."""

import dataclasses
import statistics

from benchmarks import cases
from benchmarks import workloads

KEYS = ('workload', 'impl', 'schedule', 'recompute', 'stages', 'micro_batches', 'step_s', 'examples_per_s',
        'share_of_limit', 'build_s', 'peak_mb')


@dataclasses.dataclass
class Measurement:
  """What a worker measured."""
  case: cases.Case
  build_s: float  # seconds to build the graph
  loss: float  # of the first step
  rounds: list  # of each round, the seconds of its steps, a list
  peak_mb: float = 0.

  def StepSeconds(self):
    """The median over all steps."""
    return statistics.median(t for steps in self.rounds for t in steps)


def Limit(t1, stages, micro_batches, recompute):
  """Seconds of a step of a pipeline whose stages compute without a pause, but for the bubble.

  Args:
    t1: Seconds of a step without a pipeline, on one core.
    stages: K.
    micro_batches: M.
    recompute: `never`, or else the forward pass, a third of the work, runs twice (whatever is spared of that).

  Returns:
    T1 / K * (M + K - 1) / M, times 4/3 where recomputing.
  """
  limit = t1 / stages * (micro_batches + stages - 1) / micro_batches
  return limit if recompute == 'never' else limit * 4 / 3


def Ratio(base, other):
  """How many times as fast as `base` the other Measurement is: the median of the rounds' ratios.

  The machine's speed drifts, so only times of the same round are compared.
  """
  return statistics.median(
      statistics.median(b) / statistics.median(o) for b, o in zip(base.rounds, other.rounds))


def Entry(measurement, none):
  """The JSON object of a Measurement, given that of its group without a pipeline (None: it isn't there)."""
  case = measurement.case
  step_s = measurement.StepSeconds()
  share = None
  if none is not None:
    share = Limit(Ratio(none, measurement), case.stages, case.micro_batches, case.recompute)
  values = (*case, step_s, workloads.Get(case.workload).batch / step_s, share, measurement.build_s,
            measurement.peak_mb)
  return dict(zip(KEYS, values))


def NewEntries(measurements, entries):
  """The JSON objects of a group's Measurements, but for those of cases that `entries` has already.

  Without a pipeline there is nothing new in each group: its first measurement stays.
  """
  none = Find(measurements, 'none')
  cases_done = {tuple(e[key] for key in cases.Case._fields) for e in entries}
  return [Entry(m, none) for m in measurements if m.case not in cases_done]


def Find(measurements, *start):
  """The first Measurement whose case has this impl, schedule and recompute (or the first ones of them), or None."""
  return next((m for m in measurements if m.case[1:1 + len(start)] == start), None)


def Table(measurements, absent):
  """A group as text.

  Args:
    measurements: A list.
    absent: {case: why there is nothing to show}.

  Returns:
    Lines, joined.
  """
  first = next(iter([m.case for m in measurements] + list(absent)))
  lines = [
      f'{first.workload}, batch {workloads.Get(first.workload).batch}, '
      f'{max(c.stages for c in [m.case for m in measurements] + list(absent))} stages, '
      f'{max(c.micro_batches for c in [m.case for m in measurements] + list(absent))} micro-batches',
      f'{"":30} {"step":>9} {"examples/s":>10} {"of limit":>8} {"x lingvo":>8} {"x torch":>8} {"build":>7} {"peak":>8}',
  ]
  none = Find(measurements, 'none')
  peers = [Find(measurements, 'lingvo'), Find(measurements, 'torch_pipelining', 'gpipe')]
  for m in measurements:
    entry = Entry(m, none)
    ratios = ''.join(f' {Ratio(peer, m):8.2f}' if peer else f' {"-":>8}' for peer in peers)
    share = f'{entry["share_of_limit"]:8.2f}' if none else f'{"-":>8}'
    lines.append(f'{cases.Label(m.case):30} {entry["step_s"]:7.3f} s {entry["examples_per_s"]:10.1f} {share}{ratios} '
                 f'{m.build_s:5.1f} s {m.peak_mb:5.0f} MB')
  lines.extend(f'{cases.Label(case):30} {why}' for case, why in absent.items())
  return '\n'.join(lines)


def WrongLosses(measurements):
  """The cases whose first step's loss is not that of the others: {case: loss}.

  All start from the same weights and inputs. Where batches are normalised, only equal micro-batches can be compared.
  """
  wrong, expected = {}, {}
  for m in measurements:
    normalises = workloads.Get(m.case.workload).normalises_batch
    loss = expected.setdefault((m.case.workload, m.case.micro_batches if normalises else None), m.loss)
    if not abs(m.loss - loss) <= 1e-3 * abs(loss):
      wrong[m.case] = m.loss
  return wrong
