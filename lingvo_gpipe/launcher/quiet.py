"""Keeps TensorFlow and Lingvo quiet while they are imported.

Their C++ parts write to file descriptor 2 before any of their settings are read, so that is where they are caught.
Must be imported before TensorFlow, and so imports nothing but the standard library.
"""
import contextlib
import os
import sys
import tempfile
import warnings

_LOG_FLAGS = ('logtostderr', 'alsologtostderr', 'stderrthreshold', 'verbosity', 'v', 'vmodule')
# The command line is looked at before the flags are defined, since TensorFlow reads this as it is imported.
LOGS_WANTED = any(a.startswith('-') and a.lstrip('-').partition('=')[0] in _LOG_FLAGS for a in sys.argv[1:])

if not LOGS_WANTED:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')


@contextlib.contextmanager
def Stderr():
  """Holds back what is written to stderr, by C++ too, unless logs are wanted or the block fails."""
  if LOGS_WANTED:
    yield
    return
  sys.stderr.flush()
  with tempfile.TemporaryFile() as held, warnings.catch_warnings():
    warnings.simplefilter('ignore')
    stderr = os.dup(2)
    os.dup2(held.fileno(), 2)
    try:
      yield
    except BaseException:
      os.dup2(stderr, 2)
      held.seek(0)
      os.write(2, held.read())
      raise
    finally:
      sys.stderr.flush()
      os.dup2(stderr, 2)
      os.close(stderr)


def UnusedGraphs():
  """From here on, nobody hears of what TensorFlow finds wrong with a graph that is thrown away half-used."""
  from absl import logging  # pylint: disable=g-import-not-at-top
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  logging.set_verbosity(logging.FATAL)
  tf.get_logger().setLevel('CRITICAL')
