"""The evaler and decoder jobs on one device, with the checkpoints of a training in two stages."""
import os
import re
import shutil
import subprocess
import sys

import pytest
import tensorflow as tf

from tests import launcher_process

_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'testdata')
_FLAGS = ('--model=my_models.Decodes',)


@pytest.fixture(scope='module')
def launcher():
  process = launcher_process.LauncherProcess(_FOLDER)
  yield process
  process.Close()


@pytest.fixture(scope='module')
def logdir(launcher, tmp_path_factory):
  """Of a training in two stages; what it printed is in the file `out`."""
  path = tmp_path_factory.mktemp('logdir')
  result = launcher.Run(*_FLAGS, f'--logdir={path}', '--num_stages=2')
  assert result.code == 0, result
  (path / 'out').write_text(result.out)
  return path


def _Summaries(folder):
  """Returns {tag: value} of the event files in a folder."""
  values = {}
  for name in os.listdir(folder):
    if name.startswith('events.out.'):
      for event in tf.compat.v1.train.summary_iterator(os.path.join(folder, name)):
        values.update({v.tag: v.simple_value for v in event.summary.value if v.HasField('simple_value')})
  return values


@pytest.mark.parametrize('job, folder', [('evaler_test', 'eval_test'), ('decoder_test', 'decoder_test')])
def testResultsAndSummaries(launcher, logdir, job, folder):
  accuracy = re.search(r'^test accuracy: (\S+)$', (logdir / 'out').read_text(), re.MULTILINE).group(1)
  for line in (f'step 8: test accuracy: {accuracy}\n', r'Nothing is left to do: ckpt-00000008 is the last .*\n'):
    result = launcher.Run(*_FLAGS, f'--logdir={logdir}', f'--job={job}')
    assert result.code == 0 and not result.err, result
    assert re.fullmatch(line, result.out), result
  assert f'accuracy: {accuracy}'[:-1] in (logdir / folder / 'score-00000008.txt').read_text()
  assert format(_Summaries(logdir / folder)['accuracy'], '.3f') == accuracy
  if job == 'decoder_test':
    assert (logdir / folder / 'decoder_out_000000008').exists()


def testTwoJobsOfOneProcess(launcher, logdir, tmp_path):
  """They have variables of their own."""
  shutil.copytree(logdir / 'train', tmp_path / 'train')
  result = launcher.Run(*_FLAGS, f'--logdir={tmp_path}', '--job=evaler_test,decoder_test')
  assert result.code == 0 and not result.err, result
  accuracy = re.search(r'^test accuracy: (\S+)$', (logdir / 'out').read_text(), re.MULTILINE).group(1)
  assert result.out.splitlines() == [f'step 8: test accuracy: {accuracy}'] * 2


def testOneCheckpoint(launcher, logdir, tmp_path):
  shutil.copytree(logdir / 'train', tmp_path / 'train')
  result = launcher.Run(*_FLAGS, f'--logdir={tmp_path}', '--job=evaler_once_test@8')
  assert result.code == 0 and not result.err, result
  assert re.fullmatch(r'step 8: test accuracy: \S+\n', result.out)


@pytest.mark.slow
def testFollowsATraining(launcher, tmp_path):
  """Begun before it, and ended by its last checkpoint."""
  flags = [*_FLAGS, f'--logdir={tmp_path}']
  evaler = subprocess.Popen(
      [sys.executable, '-m', 'lingvo_gpipe.trainer', *flags, '--job=evaler_test'], cwd=_FOLDER,
      env=launcher_process.Environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  try:
    assert evaler.stdout.readline() == f'waiting for a checkpoint in {tmp_path}/train\n'
    trained = launcher.Run(*flags, '--num_stages=2', '--noeval_at_end')
    assert trained.code == 0, trained
    out, err = evaler.communicate(timeout=60)
  finally:
    evaler.kill()
  assert evaler.returncode == 0, err
  assert re.search(r'^step 8: test accuracy: \d\.\d{3}\n$', out, re.MULTILINE), out


@pytest.mark.parametrize('model, job, message', [
    ('Small', 'decoder_test', 'There is nothing to decode: the task Classifier has no decoder metrics.'),
    ('Wider', 'evaler_test', 'is not of this model: the variable small/fc2/w/var is [16, 16] in the checkpoint'),
])
def testRefusals(launcher, logdir, tmp_path, model, job, message):
  shutil.copytree(logdir / 'train', tmp_path / 'train')
  result = launcher.Run(f'--model=my_models.{model}', f'--logdir={tmp_path}', f'--job={job}')
  assert result.code == 2 and 'Traceback' not in result.err, result
  assert message in ' '.join(result.err.split())


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
