"""Measures cases side by side, each in a process of its own, in turns."""

import functools

from benchmarks import client
from benchmarks import report

_STARTING_AT_ONCE = 2


def MeasureGroup(group, rounds, steps, turn_seconds, start, before_round=lambda: None):
  """Measures cases side by side.

  Two start at a time; then they take turns, round after round.

  Args:
    group: A list of cases.
    rounds: How often each has its turn.
    steps: How many steps a turn has, at most.
    turn_seconds: A turn has fewer steps, but at least one, where they would take longer than this.
    start: Starts the worker of a case (client.Start).
    before_round: Is called before each round.

  Returns:
    (a list of Measurements; of the cases that could not be measured, {case: why}).
  """
  runners = [_Runner(case, start, steps, turn_seconds) for case in group]
  try:
    for i, runner in enumerate(runners):
      for other in runners[i:i + _STARTING_AT_ONCE]:
        other.Start()
      runner.Ready()
    for _ in range(rounds):
      before_round()
      for runner in runners:
        runner.Turn()
    for runner in runners:
      runner.Quit()
  finally:
    for runner in runners:
      runner.Kill()
  return ([r.measurement for r in runners if not r.absent], {r.case: r.absent for r in runners if r.absent})


def _UnlessAbsent(method):
  """The method is skipped once its runner is `absent`, and makes it so where the worker fails."""

  @functools.wraps(method)
  def Wrapped(self):
    if self.absent:
      return
    try:
      method(self)
    except (client.Missing, client.Failed) as e:
      self.absent = f'{"missing" if isinstance(e, client.Missing) else "failed"}: {e}'
      self.Kill()  # It may be busy for ever, which would slow down the others.

  return Wrapped


class _Runner:
  """A case and its worker.

  Attributes:
    case: The Case.
    measurement: What was measured so far, a Measurement.
    absent: Why nothing can be measured, or None.
  """

  def __init__(self, case, start, steps, turn_seconds):
    self.case = case
    self.measurement = None
    self.absent = None
    self._start, self._steps, self._turn_seconds = start, steps, turn_seconds
    self._worker = None

  @_UnlessAbsent
  def Start(self):
    """Starts the worker, unless that was done."""
    self._worker = self._worker or self._start(self.case)

  @_UnlessAbsent
  def Ready(self):
    """Waits until the worker is ready for its turns."""
    ready = self._worker.Ready()
    self._steps = max(1, min(self._steps, int(self._turn_seconds / ready['step_s'])))
    self.measurement = report.Measurement(self.case, ready['build_s'], ready['loss'], [])

  @_UnlessAbsent
  def Turn(self):
    """Times some steps."""
    self._worker.Send(f'steps {self._steps}')
    self.measurement.rounds.append(self._worker.Times())

  @_UnlessAbsent
  def Quit(self):
    """Ends the worker and notes its memory."""
    self.measurement.peak_mb = self._worker.Quit()

  def Kill(self):
    """Ends the worker, whatever it does."""
    if self._worker:
      self._worker.Kill()
      self._worker = None
