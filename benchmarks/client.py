"""Starts worker processes and talks to them; worker.py has the protocol."""

import json
import os
import pathlib
import subprocess
import sys

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_ENVIRONMENT = {
    'OMP_NUM_THREADS': '1',
    'TF_CPP_MIN_LOG_LEVEL': '3',
    'GLOO_SOCKET_IFNAME': 'lo',  # Two processes meet on loopback.
}


class Missing(Exception):
  """An implementation isn't installed; the text says what is missing."""


class Failed(Exception):
  """A worker failed; the text says how."""


class Worker:
  """A worker process that is kept alive."""

  def __init__(self, python, module, *args, log=None):
    """Starts it; `Ready` waits for it.

    Args:
      python: The Python to run it with, a path from the repository's root on.
      module: The worker's module, such as benchmarks.tf_worker.
      *args: Strings.
      log: The file for what it says besides its answers; None: nowhere.

    Raises:
      Missing: there is no such Python.
    """
    if not (_ROOT / python).exists():
      raise Missing(f'{python} is not there; `make bench` and `make bench-quick` make it')
    with open(log or os.devnull, 'w') as errors:
      self._process = subprocess.Popen(
          [_ROOT / python, '-m', module, *args], cwd=_ROOT, env={**os.environ, **_ENVIRONMENT}, text=True,
          stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    self._log = log

  def Ready(self):
    """Waits until it is built.

    Returns:
      {'build_s': seconds to build the graph, 'loss': of the first step}.

    Raises:
      Missing: something isn't installed.
      Failed: it failed.
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

  def Quit(self):
    """Ends it and returns its peak memory in MB."""
    self.Send('quit')
    peak_mb = self._Answer('peak_mb')
    self._process.wait()
    return peak_mb

  def Kill(self):
    """Ends it, whatever it does."""
    self._process.kill()
    self._process.wait()
    for pipe in (self._process.stdin, self._process.stdout):
      try:
        pipe.close()
      except BrokenPipeError:
        pass

  def _Answer(self, key):
    line = self._process.stdout.readline()
    if not line:
      where = f'; see {self._log}' if self._log else ''
      raise Failed(f'the process ended with code {self._process.wait()}{where}')
    answer = json.loads(line)
    if 'missing' in answer:
      raise Missing(answer['missing'])
    if 'failed' in answer:
      raise Failed(answer['failed'])
    return answer[key]


def Start(case, log=None):
  """Starts the worker of a case."""
  if case.impl in ('torchgpipe', 'torch_pipelining'):
    python, module = '.venv-bench/bin/python', 'benchmarks.torch_worker'
  else:
    python, module = sys.executable, 'benchmarks.tf_worker'
  return Worker(python, module, json.dumps(case), log=log)
