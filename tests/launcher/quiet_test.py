"""Tests for what is said while TensorFlow is imported."""
import subprocess
import sys
import textwrap

from tests import launcher_process

_PROGRAM = textwrap.dedent("""
    import os, sys, warnings
    from lingvo_gpipe.launcher import quiet
    with quiet.Stderr():
      os.write(2, b'from C++\\n')
      print('from Python', file=sys.stderr)
      warnings.warn('a warning')
      if '--fail' in sys.argv:
        raise ImportError('broken')
    os.write(2, b'afterwards\\n')
    print(os.environ.get('TF_CPP_MIN_LOG_LEVEL'))
    """)


def _Run(*args):
  """Returns what the program writes to stdout and to stderr."""
  result = subprocess.run(
      [sys.executable, '-c', _PROGRAM, *args], capture_output=True, text=True, env=launcher_process.Environment())
  return result.stdout, result.stderr


def testQuiet():
  assert _Run() == ('3\n', 'afterwards\n')


def testAFailureTellsAll():
  _, err = _Run('--fail')
  assert 'from C++\nfrom Python\n' in err
  assert 'ImportError: broken' in err


def testLogsWanted():
  out, err = _Run('--logtostderr')
  assert out == 'None\n'
  assert 'from C++' in err and 'a warning' in err
