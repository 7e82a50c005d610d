"""Training over processes that could be on as many hosts, one of which is killed and comes back."""
import contextlib
import os
import re
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from lingvo_gpipe.launcher import metrics_log
from tests import launcher_process

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'testdata')
_STEPS = 1500


def _FreePorts(n):
  with contextlib.ExitStack() as stack:
    sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
    for s in sockets:
      s.bind(('localhost', 0))
    return [s.getsockname()[1] for s in sockets]


class _Hosts:
  """Two workers and a trainer.

  Attributes:
    trainer: The trainer's process.
  """

  def __init__(self, logdir, stack):
    ports = _FreePorts(3)
    stages = ','.join(f'/job:worker/replica:0/task:{i}/device:CPU:0' for i in range(2))
    self._flags = [
        '--model=my_models.Small', f'--logdir={logdir}', '--num_stages=2', f'--stage_devices={stages}',
        '--cluster_spec=worker=localhost:{},localhost:{}@trainer_client=localhost:{}'.format(*ports),
        f'--model_params_override=train.max_steps:{_STEPS};train.save_interval_seconds:1']
    self._stack = stack
    self._workers = [self._Start('worker', i) for i in range(2)]
    self.trainer = self._Start('trainer_client', 0)

  def _Start(self, job, task):
    process = subprocess.Popen(
        [sys.executable, '-m', 'lingvo_gpipe.trainer', *self._flags, f'--job={job}', f'--task={task}'], cwd=_FOLDER,
        env=launcher_process.Environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    self._stack.callback(process.communicate)  # Waits, so that none is left behind.
    self._stack.callback(process.kill)
    return process

  def Restart(self, task):
    """Kills a worker and starts it again."""
    self._workers[task].kill()
    self._workers[task].wait()
    self._workers[task] = self._Start('worker', task)


def _Losses(logdir):
  return {row['step']: row['loss'] for row in metrics_log.Read(str(logdir / 'train/metrics.jsonl'))}


@pytest.mark.slow
def testAWorkerIsKilledAndComesBack(tmp_path):
  alone = tmp_path / 'alone'
  subprocess.run(
      [sys.executable, '-m', 'lingvo_gpipe.trainer', '--model=my_models.Small', f'--logdir={alone}', '--num_stages=1',
       '--noeval_at_end', '--model_params_override=train.max_steps:20'],
      cwd=_FOLDER, env=launcher_process.Environment(), check=True, stdout=subprocess.DEVNULL)
  expected = _Losses(alone)
  logdir = tmp_path / 'hosts'
  with contextlib.ExitStack() as stack:
    hosts = _Hosts(logdir, stack)
    # Two checkpoints: those of the first step and of a later one.
    deadline = time.time() + 90
    while len(list((logdir / 'train').glob('ckpt-*.index'))) < 2:
      assert time.time() < deadline and hosts.trainer.poll() is None
      time.sleep(.05)
    hosts.Restart(1)
    out, err = hosts.trainer.communicate(timeout=120)
  assert hosts.trainer.returncode == 0, (out, err)
  assert re.match('trying again after: .*task:1', err), err
  resumed = int(re.search(r'resuming after step (\d+) of', out).group(1))
  assert 1 <= resumed < _STEPS
  assert re.search(f'^step {_STEPS}/{_STEPS} ', out, re.MULTILINE), out
  losses = _Losses(logdir)
  assert list(losses) == list(range(1, _STEPS + 1))
  np.testing.assert_allclose([losses[step] for step in expected], list(expected.values()), rtol=1e-5)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
