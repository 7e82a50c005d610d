"""Tests for the lines while training."""
import io

from lingvo_gpipe.launcher import progress


class _Clock:
  """A clock that tests set."""
  now = 100.

  def __call__(self):
    return self.now


class _Terminal(io.StringIO):

  def isatty(self):
    return True


def testPlainLines():
  out, clock = io.StringIO(), _Clock()
  shown = progress.Progress(0, 1000, out, interval_seconds=5, clock=clock)
  clock.now += 30  # The first step takes long; rates don't count it.
  shown.Step(1, 2.5, 64)
  for step in range(2, 13):
    clock.now += 1
    shown.Step(step, 2.5 - step / 10, 64)
  shown.Close()
  shown.Close()
  assert out.getvalue().splitlines() == [
      'step 1/1000  loss 2.5000',
      'step 6/1000  loss 1.9000  64 examples/s  0:16:34 left',
      'step 11/1000  loss 1.4000  64 examples/s  0:16:29 left',
      'step 12/1000  loss 1.3000  64 examples/s  0:16:28 left',
  ]


def testSlowStepsAndTheLastOne():
  out, clock = io.StringIO(), _Clock()
  shown = progress.Progress(7, 9, out, interval_seconds=5, clock=clock)
  shown.Step(8, 1., 1)
  clock.now += 16
  shown.Step(9, float('nan'), 1)
  shown.Close()
  assert out.getvalue().splitlines() == ['step 8/9  loss 1.0000', 'step 9/9  loss nan  0.06 examples/s']


def testNoStepsNoLines():
  out = io.StringIO()
  progress.Progress(5, 5, out).Close()
  assert not out.getvalue()


def testBarOnATerminal():
  out, clock = _Terminal(), _Clock()
  shown = progress.Progress(2, 10, out, clock=clock)
  shown.Step(3, 2., 8)
  clock.now += 1
  shown.Step(4, 1., 8)
  shown.Close()
  last = out.getvalue().replace('\n', '\r').rstrip('\r').rpartition('\r')[2]
  assert last == '|########            | step 4/10  loss 1.0000  8.00 examples/s  0:00:06 left'


def testDuration():
  assert progress.Duration(59.9) == '0:00:59'
  assert progress.Duration(3 * 3600 + 62) == '3:01:02'
  assert progress.Duration(2 * 86400 + 3600) == '2 d 01:00:00'
