"""A worker process and its client talk to each other."""

import sys

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

def Build():
  %s
  return Trainer()

worker.Serve(Build)
'''


def _Worker(tmp_path, monkeypatch, first='pass'):
  (tmp_path / 'fake_worker.py').write_text(_MODULE % first)
  monkeypatch.setenv('PYTHONPATH', str(tmp_path))
  return client.Worker(sys.executable, 'fake_worker')


def testStepsAndPeak(tmp_path, monkeypatch):
  worker = _Worker(tmp_path, monkeypatch)
  assert worker.Ready() == {'build_s': 2., 'loss': 3.}
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


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
