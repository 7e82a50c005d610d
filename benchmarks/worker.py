"""A worker process: builds one case, says so, and runs steps when it is told to.

It reads lines from the standard input, `steps N` or `quit`, and answers each with a line of JSON:

  {"ready": {"build_s": ..., "loss": ...,   built and warmed up; the loss is the first step's, step_s the seconds of
             "step_s": ...}}                the last
  {"missing": "what isn't installed"}       or this, and the worker ends
  {"failed": "what went wrong"}             or this, and the worker ends
  {"times": [...]}                          seconds of each of the N steps
  {"peak_mb": ...}                          to `quit`

client.py is the other end.
"""

import json
import os
import sys
import time
import traceback

_WARM_UP_STEPS = 2


def Pin(first, count):
  """Keeps this thread, and those that it will start, on `count` of the cores that the process may use.

  To be called before the first step, which is when TensorFlow and PyTorch start the threads that compute.

  Args:
    first: The place of the first core among these.
    count: How many cores.

  Raises:
    RuntimeError: there are not so many cores.
  """
  cores = sorted(os.sched_getaffinity(0))
  if len(cores) < first + count:
    raise RuntimeError(f'{first + count} cores are needed, one a device, but there are {len(cores)}.')
  os.sched_setaffinity(0, cores[first:first + count])


def PeakMb():
  """The most memory that this process ever had resident, in MB."""
  with open('/proc/self/status') as status:
    line = next(line for line in status if line.startswith('VmHWM:'))
  return int(line.split()[1]) / 1024


class Trainer:
  """What a worker runs."""

  build_s = 0.  # Seconds to build the graph; 0 where there is no graph.

  def Step(self):
    """Runs one training step to its end and returns the loss before it."""
    raise NotImplementedError

  def Steps(self, n):
    """Runs n steps and returns the seconds of each, a list."""
    times = []
    for _ in range(n):
      start = time.perf_counter()
      self.Step()
      times.append(time.perf_counter() - start)
    return times

  def WarmedUp(self):
    """Is called once, after the first steps."""

  def PeakMb(self):
    """The most memory of all processes of the trainer, in MB."""
    return PeakMb()


def Answers():
  """A function that writes a line of JSON with its keyword arguments to the standard output.

  Libraries print what they like there; from now on that goes to stderr.
  """
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)

  def Answer(**message):
    print(json.dumps(message), file=answers, flush=True)

  return Answer


def Serve(build):
  """Runs the protocol above until `quit` or the end of the input.

  Args:
    build: Makes the Trainer; may raise ImportError where something isn't installed.
  """
  Answer = Answers()
  try:
    trainer = build()
    losses = []
    for _ in range(_WARM_UP_STEPS):
      start = time.perf_counter()
      losses.append(trainer.Step())
      step_s = time.perf_counter() - start
    trainer.WarmedUp()
    Answer(ready={'build_s': trainer.build_s, 'loss': losses[0], 'step_s': step_s})
  except ImportError as e:
    Answer(missing=str(e))
    return
  except Exception as e:  # pylint: disable=broad-except
    traceback.print_exc()
    Answer(failed=f'{type(e).__name__}: {e}'.splitlines()[0])
    return
  for line in sys.stdin:
    command = line.split()
    if command[0] == 'steps':
      Answer(times=trainer.Steps(int(command[1])))
    else:
      Answer(peak_mb=trainer.PeakMb())
      return
