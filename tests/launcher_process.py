"""Runs launcher commands for tests: one process imports TensorFlow, and forks once for each command.

TensorFlow takes seconds to import; a dozen commands would make that a minute.
"""
import collections
import importlib
import json
import os
import subprocess
import sys
import tempfile

_REPOSITORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

Result = collections.namedtuple('Result', ['code', 'out', 'err'])


def Environment():
  """Returns an environment in which Python finds the repository from any folder."""
  env = dict(os.environ, PYTHONPATH=_REPOSITORY)
  env.pop('TF_CPP_MIN_LOG_LEVEL', None)  # What the launcher sets by itself is part of the test.
  return env


class LauncherProcess:
  """A process that has the launcher imported."""

  def __init__(self, folder):
    """Starts the process.

    Args:
      folder: the current folder of the commands.
    """
    self._process = subprocess.Popen(
        [sys.executable, os.path.abspath(__file__)], cwd=folder, env=Environment(), stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True)

  def Run(self, *args, command='trainer'):
    """Runs the launcher, or another command, with the given flags; returns its Result."""
    with tempfile.TemporaryDirectory() as folder:
      paths = [os.path.join(folder, name) for name in ('out', 'err')]
      self._process.stdin.write(json.dumps([command, args, paths]) + '\n')
      self._process.stdin.flush()
      code = json.loads(self._process.stdout.readline())
      texts = []
      for path in paths:
        with open(path) as f:
          texts.append(f.read())
    return Result(code, *texts)

  def Close(self):
    self._process.stdin.close()
    self._process.wait()


def _Serve():
  """Runs commands from stdin, one a line, until it ends."""
  sys.path[0] = os.getcwd()  # As `python -m` has it; not the folder of this file.
  sys.argv = ['lingvo_gpipe_trainer']
  import lingvo_gpipe.trainer  # pylint: disable=g-import-not-at-top,unused-import
  for line in sys.stdin:
    command, args, paths = json.loads(line)
    child = os.fork()
    if not child:
      for descriptor, path in zip((1, 2), paths):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY), descriptor)
      sys.argv = sys.orig_argv = [f'lingvo_gpipe_{command}'] + args
      importlib.import_module(f'lingvo_gpipe.{command}').main_cli()
    _, status = os.waitpid(child, 0)
    print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


if __name__ == '__main__':
  _Serve()
