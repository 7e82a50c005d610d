"""Tests for Ctrl-C."""
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from lingvo_gpipe.launcher import stop_signals
from tests import launcher_process


@pytest.mark.parametrize('number, exit_code', [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def testTheFirstSignalIsNoted(number, exit_code):
  before = signal.getsignal(number)
  told = threading.Event()
  with stop_signals.StopSignals(told.set) as signals:
    assert (signals.received, signals.exit_code) == (None, 0)
    os.kill(os.getpid(), number)
    assert told.wait(10)
  assert (signals.received, signals.exit_code) == (number, exit_code)
  assert signal.getsignal(number) == before


def testWithoutASignal():
  with stop_signals.StopSignals(lambda: None) as signals:
    pass
  assert signals.received is None
  with pytest.raises(KeyboardInterrupt):
    signal.raise_signal(signal.SIGINT)


def testTheSecondSignalEndsTheProcess():
  """Even while the main thread is busy: neither handlers nor `finally` are waited for."""
  program = textwrap.dedent("""
      import os, signal, sys, threading
      from lingvo_gpipe.launcher import stop_signals
      def First():
        print('first', flush=True)
        os.kill(os.getpid(), signal.SIGINT)
      with stop_signals.StopSignals(First):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(30)
      """)
  result = subprocess.run(
      [sys.executable, '-c', program], capture_output=True, text=True, env=launcher_process.Environment(), timeout=20)
  assert (result.returncode, result.stdout) == (130, 'first\n'), result
