"""A worker process and its client talk to each other."""

import sys
import time

import pytest

from benchmarks import client

# What a worker's module does, at its smallest.
_MODULE = '''
from benchmarks import worker

class Trainer(worker.Trainer):
  build_s = 2.

  def Step(self):
    print('noise')
    return 3.

  def WarmedUp(self):
    self.warm = True

  def Steps(self, n):
    assert self.warm, 'A trainer of several processes may not hear of turns before.'
    return super().Steps(n)

def Build():
  %s
  return Trainer()

worker.Serve(Build)
'''


def _Worker(tmp_path, monkeypatch, first='pass', **kwargs):
  (tmp_path / 'fake_worker.py').write_text(_MODULE % first)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  return client.Worker(sys.executable, 'fake_worker', **kwargs)


def testStepsAndPeak(tmp_path, monkeypatch):
  worker = _Worker(tmp_path, monkeypatch)
  ready = worker.Ready()
  assert 0 < ready.pop('step_s') < 1
  assert ready == {'build_s': 2., 'loss': 3.}
  worker.Send('steps 4')
  assert len(worker.Times()) == 4
  assert worker.Quit() > 1


@pytest.mark.parametrize('first,error,text', [
    ('import not_installed_anywhere', client.Missing, "No module named 'not_installed_anywhere'"),
    ('raise ValueError("too bad")', client.Failed, 'ValueError: too bad'),
    ('import os; os._exit(7)', client.Failed, 'ended with code 7'),
])
def testFailures(tmp_path, monkeypatch, first, error, text):
  worker = _Worker(tmp_path, monkeypatch, first)
  with pytest.raises(error, match=text):
    worker.Ready()
  worker.Kill()


def testHungWorkerFailsAndIsEndedWithItsChildren(tmp_path, monkeypatch):
  child = tmp_path / 'child'
  hang = f"""import subprocess, time
  child = subprocess.Popen(['sleep', '1000'])
  open({str(child)!r}, 'w').write(str(child.pid))
  time.sleep(1000)"""
  worker = _Worker(tmp_path, monkeypatch, hang, timeout=3, log=tmp_path / 'log')
  with pytest.raises(client.Failed, match=r'no answer \(ready\) within 3 seconds; see .*/log'):
    worker.Ready()
  worker.Kill()
  for _ in range(100):
    if not _IsRunning(int(child.read_text())):
      return
    time.sleep(0.05)
  assert False, 'the child still runs'


def _IsRunning(pid):
  """Whether there is such a process that hasn't ended."""
  try:
    with open(f'/proc/{pid}/stat') as stat:
      return stat.read().rsplit(')', 1)[1].split()[0] != 'Z'
  except FileNotFoundError:
    return False


def testNoPythonIsMissing():
  with pytest.raises(client.Missing, match='no/python is not there'):
    client.Worker('no/python', 'benchmarks.torch_worker')


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
