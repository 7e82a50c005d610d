"""The lines while training: a bar on a terminal, a plain line every few seconds elsewhere."""
import os
import sys
import time

import tqdm

_BAR_FORMAT = '|{bar:20}| {desc}'


def Duration(seconds):
  """Returns a duration as people write it: 0:03:12, or 2 d 04:10:00."""
  minutes, seconds = divmod(int(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  days, hours = divmod(hours, 24)
  return f'{days} d {hours:02}:{minutes:02}:{seconds:02}' if days else f'{hours}:{minutes:02}:{seconds:02}'


def _IsTerminal(stream):
  """Returns whether a stream is a terminal of a known size; on one without, tqdm shows nothing."""
  if not stream.isatty():
    return False
  try:
    size = os.get_terminal_size(stream.fileno())
  except OSError:
    return True
  return size.columns > 0 and size.lines > 0


class Progress:
  """Shows step, loss, examples a second and time left.

  The first step of a run is left out of the rates: it also prepares the graph on its devices.
  """

  def __init__(self, first_step, max_steps, stream=None, interval_seconds=5., clock=time.monotonic):
    """Constructor.

    Args:
      first_step: number of steps already done.
      max_steps: the step at which training ends.
      stream: a text file; stdout by default.
      interval_seconds: the shortest time between two plain lines.
      clock: returns the time in seconds.
    """
    self._stream = stream or sys.stdout
    self._max_steps = max_steps
    self._interval_seconds = interval_seconds
    self._clock = clock
    self._start = None  # (time, step) after the first step of this run.
    self._shown = None  # (time, examples) when the last line was written.
    self._examples = 0
    self._last = None  # (step, loss) of the last step done.
    self._last_shown_step = None
    self._bar = None
    if _IsTerminal(self._stream):
      self._bar = tqdm.tqdm(
          total=max_steps, initial=first_step, file=self._stream, bar_format=_BAR_FORMAT, dynamic_ncols=True)

  def Step(self, step, loss, num_examples):
    """Takes note of a step that is done, and shows it if it is time.

    Args:
      step: number of steps done, this one included.
      loss: a float.
      num_examples: number of examples in the step's mini-batch.
    """
    now = self._clock()
    self._last = (step, loss)
    if self._start is None:
      self._start = (now, step)
      self._shown = (now, 0)
      self._Show(now)
      return
    self._examples += num_examples
    if now - self._shown[0] >= (self._interval_seconds if self._bar is None else 0.5):
      self._Show(now)

  def Close(self):
    """Shows the last step, unless it was shown already."""
    if self._last and self._last[0] != self._last_shown_step:
      self._Show(self._clock())
    if self._bar is not None:
      self._bar.close()

  def _Show(self, now):
    step, loss = self._last
    parts = [f'step {step}/{self._max_steps}', f'loss {loss:.4f}']
    seconds = now - self._shown[0]
    if self._examples > self._shown[1] and seconds > 0:
      rate = (self._examples - self._shown[1]) / seconds
      parts.append(f'{rate:.0f} examples/s' if rate >= 10 else f'{rate:.2f} examples/s')
    done = step - self._start[1]
    if done and step < self._max_steps:
      left = (now - self._start[0]) / done * (self._max_steps - step)
      parts.append(f'{Duration(left)} left')
    self._shown = (now, self._examples)
    self._last_shown_step = step
    if self._bar is None:
      print('  '.join(parts), file=self._stream, flush=True)
    else:
      self._bar.n = step
      self._bar.set_description_str('  '.join(parts))
