"""Starts worker processes and talks to them; worker.py has the protocol."""

import contextlib
import json
import os
import pathlib
import select
import signal
import subprocess
import sys

from benchmarks import worker

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TIMEOUT = 300.
_ENVIRONMENT = {
    'OMP_NUM_THREADS': '1',
    'TF_CPP_MIN_LOG_LEVEL': '3',
    'GLOO_SOCKET_IFNAME': 'lo',  # Two processes meet on loopback.
}


class Missing(Exception):
  """An implementation isn't installed; the text says what is missing."""


class Failed(Exception):
  """A worker failed; the text says how."""


@contextlib.contextmanager
def OnCore(place):
  """Processes that are started inside keep to one core.

  Args:
    place: The core's place among those that this process may use.

  Raises:
    RuntimeError: there are not so many.
  """
  cores = os.sched_getaffinity(0)
  worker.Pin(place, 1)
  try:
    yield
  finally:
    os.sched_setaffinity(0, cores)


class Worker:
  """A worker process that is kept alive.

  Its methods raise Missing where something isn't installed, and Failed where it fails or doesn't answer in time.
  """

  def __init__(self, python, module, *args, log=None, timeout=_TIMEOUT, own_group=True):
    """Starts it; `Ready` waits for it.

    Args:
      python: The Python to run it with, a path from the repository's root on.
      module: The worker's module, such as benchmarks.tf_worker.
      *args: Strings.
      log: The file for what it says besides its answers; None: nowhere.
      timeout: How many seconds it may take for an answer.
      own_group: Whether to make it the head of a group of processes, which `Kill` ends with it. A worker that another
        one starts stays in that one's group.

    Raises:
      Missing: there is no such Python.
    """
    if not (_ROOT / python).exists():
      raise Missing(f'{python} is not there; `make bench` and `make bench-quick` make it')
    with open(log or os.devnull, 'w') as errors:
      self._process = subprocess.Popen(
          [_ROOT / python, '-m', module, *args], cwd=_ROOT, env={**os.environ, **_ENVIRONMENT}, text=True,
          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, start_new_session=own_group)
    self._log = log
    self._timeout = timeout
    self._own_group = own_group

  def Ready(self):
    """Waits until it is built.

    Returns:
      {'build_s': seconds to build the graph, 'loss': of the first step, 'step_s': seconds of the last step so far}.
    """
    return self._Answer('ready')

  def Send(self, line):
    """Tells it something; `Times` has the answer to `steps N`."""
    try:
      self._process.stdin.write(line + '\n')
      self._process.stdin.flush()
    except BrokenPipeError:
      pass  # It is gone, which the missing answer will show.

  def Times(self):
    """The seconds of each step that it was told to run, a list."""
    return self._Answer('times')

  def Costs(self):
    """What layers cost, the answer of benchmarks.plan_costs: a list of dicts."""
    return self._Answer('costs')

  def Quit(self):
    """Ends it and returns its peak memory in MB."""
    self.Send('quit')
    peak_mb = self._Answer('peak_mb')
    self._process.wait()
    self._own_group = False  # Its number may soon be another's.
    return peak_mb

  def Kill(self):
    """Ends it and those that it started, whatever they do."""
    if self._own_group:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(self._process.pid, signal.SIGKILL)
    self._process.kill()
    self._process.wait()
    for pipe in (self._process.stdin, self._process.stdout):
      try:
        pipe.close()
      except BrokenPipeError:
        pass

  def _Answer(self, key):
    where = f'; see {self._log}' if self._log else ''
    # It answers one line to one question, so none lies in the buffer of `stdout`, which `select` doesn't see.
    if not select.select([self._process.stdout], [], [], self._timeout)[0]:
      raise Failed(f'no answer ({key}) within {self._timeout:.0f} seconds{where}')
    line = self._process.stdout.readline()
    if not line:
      raise Failed(f'the process ended with code {self._process.wait()}{where}')
    answer = json.loads(line)
    if 'missing' in answer:
      raise Missing(answer['missing'])
    if 'failed' in answer:
      raise Failed(answer['failed'])
    return answer[key]


# Of each implementation: the environment and the module of its worker.
_TF = (sys.executable, 'benchmarks.tf_worker')
_TORCH = ('.venv-bench/bin/python', 'benchmarks.torch_worker')
_WORKERS = {
    'none': _TF,
    'gpipe': _TF,
    'lingvo': _TF,
    'gpipe_grpc': (sys.executable, 'benchmarks.grpc_worker'),
    'torchgpipe': _TORCH,
    'torch_pipelining': _TORCH,
}


def Start(case, log=None, timeout=_TIMEOUT):
  """Starts the worker of a case."""
  return Worker(*_WORKERS[case.impl], json.dumps(case), log=log, timeout=timeout)
