"""Cases take turns, and one that is missing or fails is named."""

import sys

import pytest

from benchmarks import cases
from benchmarks import client
from benchmarks import measure
from benchmarks import report


class _Worker:
  """A worker whose steps take 0.2 seconds, it says."""

  def __init__(self, said, name, failing=False):
    self._said, self._name, self._failing = said, name, failing

  def Ready(self):
    return {'build_s': 0.1, 'loss': 1., 'step_s': 0.2}

  def Send(self, line):
    self._said.append((self._name, line))

  def Times(self):
    if self._failing:
      raise client.Failed('no answer (times) within 1 seconds')
    return [0.2] * int(self._said[-1][1].split()[1])

  def Quit(self):
    return 50.

  def Kill(self):
    self._said.append((self._name, 'kill'))


def testTurns():
  said = []
  group = cases.Group('residual', 2, 8)[:2]
  measurements, absent = measure.MeasureGroup(group, 2, 3, 10., lambda case: _Worker(said, case.impl))
  assert [m.case for m in measurements] == group and not absent
  assert [name for name, line in said if line == 'steps 3'] == ['none', 'gpipe', 'none', 'gpipe']
  assert [m.rounds for m in measurements] == [[[0.2] * 3] * 2] * 2
  assert [m.peak_mb for m in measurements] == [50., 50.]
  assert ('gpipe', 'kill') in said


@pytest.mark.parametrize('turn_seconds,steps', [(10., 3), (0.5, 2), (0.1, 1)])
def testLongStepsAreFewer(turn_seconds, steps):
  said = []
  measure.MeasureGroup(cases.Group('residual', 2, 8)[:1], 1, 3, turn_seconds, lambda case: _Worker(said, case.impl))
  assert said[0] == ('none', f'steps {steps}')


def testMissingPeerIsNamedAndNotInvented():

  def Start(case):
    if case.impl.startswith('torch'):
      raise client.Missing("No module named 'torch'")
    return _Worker([], case.impl)

  group = cases.Group('residual', 2, 8)
  measurements, absent = measure.MeasureGroup(group, 2, 3, 10., Start)
  assert {m.case.impl for m in measurements} == {'none', 'gpipe', 'lingvo'}
  assert {c.impl for c in absent} == {'torchgpipe', 'torch_pipelining'}
  table = report.Table(measurements, absent)
  assert "missing: No module named 'torch'" in table
  assert len(table.splitlines()) == 2 + len(group)


def testFailedOneIsEndedAtOnce():
  said = []
  group = cases.Group('residual', 2, 8)[:2]
  measurements, absent = measure.MeasureGroup(
      group, 2, 3, 10., lambda case: _Worker(said, case.impl, failing=case.impl == 'none'))
  assert [m.case.impl for m in measurements] == ['gpipe']
  assert absent == {group[0]: 'failed: no answer (times) within 1 seconds'}
  assert said.index(('none', 'kill')) < said.index(('gpipe', 'steps 3'))


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
