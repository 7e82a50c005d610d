"""Tests for the launcher as a whole: commands, and what people see of them."""
import os
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest

from lingvo_gpipe.launcher import metrics_log
from tests import launcher_process

_MODELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'testdata', 'my_models.py')


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder outside of the repository, with models in a module."""
  path = tmp_path_factory.mktemp('project')
  shutil.copy(_MODELS, path)
  return path


@pytest.fixture(scope='module')
def launcher(folder):
  process = launcher_process.LauncherProcess(folder)
  yield process
  process.Close()


def Losses(logdir):
  """Returns {step: loss} of a run."""
  return {row['step']: row['loss'] for row in metrics_log.Read(os.path.join(logdir, 'train', 'metrics.jsonl'))}


def Refused(result):
  """Returns the one paragraph with which a command was refused."""
  assert result.code == 2, result
  assert 'Traceback' not in result.err
  assert result.err.startswith('error: ')
  assert '\n\n' not in result.err
  return ' '.join(result.err.split())


def testLossesAreTheSameToTheLastBitForAnyNumberOfStages(launcher, tmp_path):
  losses = []
  for k in (1, 2):
    result = launcher.Run(
        '--model=model_registry.image.resnet.ResNetDigits', f'--logdir={tmp_path}/{k}', f'--num_stages={k}',
        '--noeval_at_end', '--model_params_override=train.max_steps:10')
    assert result.code == 0, result
    losses.append(Losses(f'{tmp_path}/{k}'))
  assert len(losses[0]) == 10
  assert losses[0] == losses[1]


def testRelativeLogdirThatIsMoved(launcher, folder):
  command = ['--model=my_models.Small', '--logdir=runs/small', '--num_stages=2']
  result = launcher.Run(*command)
  assert result.code == 0 and not result.err, result
  assert 'test accuracy: ' in result.out
  assert os.path.exists(os.path.join(folder, 'runs/small/train/checkpoint'))
  # Moved, it is the same run: its checkpoints are found, and none is deleted as if it were of an older one.
  os.rename(os.path.join(folder, 'runs/small'), os.path.join(folder, 'runs/moved'))
  command[1] = '--logdir=runs/moved'
  result = launcher.Run(*command, '--model_params_override=train.max_steps:9')
  assert result.code == 0 and not result.err, result
  assert 'resuming after step 8 of 9' in result.out
  assert os.path.exists(os.path.join(folder, 'runs/moved/train/ckpt-00000008.index'))


def testTrainsResumesAndEvaluates(launcher, tmp_path):
  """Two stages, then one from the same checkpoint, against one stage all along."""
  logdir = str(tmp_path / 'two')
  two = launcher.Run('--model=my_models.Small', f'--logdir={logdir}', '--num_stages=2')
  assert two.code == 0, two
  assert not two.err  # No logs.
  out = two.out.splitlines()
  assert out[0] == f'my_models.Small in {logdir}'
  assert out[1].split() == ['stage', 'device', 'layers', 'parameters', 'cost']
  assert re.match(r' +0  CPU:0   2: fc0 \.\.\. fc1 +352 ', out[2])
  assert re.match(r' +1  CPU:1   2: fc2 \.\.\. fc3 +306 ', out[3])
  assert out[4:6] == ['658 parameters', 'starting at step 0 of 8']
  assert re.match(r'step 1/8  loss \d\.\d{4}$', out[6])
  assert re.match(r'step 8/8  loss \d\.\d{4}  [\d.]+ examples/s$', out[-2])
  assert re.match(r'test accuracy: \d\.\d{3}$', out[-1])

  again = launcher.Run(
      '--model=my_models.Small', f'--logdir={logdir}', '--num_stages=1', '--model_params_override=train.max_steps:12')
  assert again.code == 0, again
  assert 'resuming after step 8 of 12' in again.out

  alone = launcher.Run(
      '--model=my_models.Small', f'--logdir={tmp_path}/one', '--num_stages=1', '--noeval_at_end',
      '--model_params_override=train.max_steps:12')
  assert alone.code == 0, alone
  assert 'accuracy' not in alone.out
  losses = Losses(logdir)
  expected = Losses(f'{tmp_path}/one')
  assert list(losses) == list(expected) == list(range(1, 13))
  np.testing.assert_allclose(list(losses.values()), list(expected.values()), rtol=1e-5)
  assert losses[12] < losses[1]

  other = launcher.Run('--model=my_models.Wider', f'--logdir={logdir}', '--num_stages=2')
  assert 'is not of this model' in Refused(other)


def testOneMicroBatchWhereTheTestBatchCantBeSplit(launcher, tmp_path):
  result = launcher.Run('--model=my_models.OddTest', f'--logdir={tmp_path}', '--num_stages=2')
  assert result.code == 0, result
  assert re.match(r'test accuracy: \d\.\d{3}$', result.out.splitlines()[-1])


def testAModelWithoutAPipeline(launcher, tmp_path):
  result = launcher.Run('--model=my_models.Unpipelined', f'--logdir={tmp_path}')
  assert result.code == 0, result
  assert '10 parameters, no pipeline' in result.out


@pytest.mark.parametrize('flags, message', [
    (['--model=my_models.Smal'], 'Did you mean my_models.Small?'),
    (['--model=nowhere.Small'], 'There is no model nowhere.Small.'),
    ([], 'There is no --model.'),
    (['--model=my_models.Small', '--logdir='], 'There is no --logdir'),
    (['--model=my_models.Small', '--logdir=/proc/none'], "--logdir=/proc/none can't be written"),
    (['--model=my_models.Small', '--logdir=/proc'], "--logdir=/proc can't be written"),
    (['--model=my_models.Small', '--mode=Sync'], 'It is one of sync, async'),
    (['--model=my_models.Small', '--job=trainer'], 'With --mode=sync the job that trains is trainer_client.'),
    (['--model=my_models.Small', '--mode=async', '--job=trainer_client'], 'the job that trains is trainer.'),
    (['--model=my_models.Small', '--worker_split_size=2'], 'not a multiple of --worker_split_size'),
    (['--model=my_models.Small', '--worker_gpus=99'], '--worker_gpus=99, and TensorFlow found'),
    (['--model=my_models.Small', '--in_flight=2'], '--in_flight=2 bounds'),
    (['--model=my_models.Small', '--mode=inspect_model', '--num_stages=5'], 'num_stages=5'),
    (['--model=my_models.Small', '--mode=inspect_model', '--model_params_override=tran.max_steps:3'], 'tran'),
    (['--model=my_models.Small', '--job=evaler_once_test'], 'names a dataset and a step'),
    (['--model=my_models.Small', '--job=evaler_once_test@99'], 'There is no checkpoint'),
    (['--model=my_models.Small', '--job=worker', '--cluster_spec=worker'], 'Invalid job specification: worker'),
    (['--model=my_models.Small', '--job=trainer_client', '--cluster_spec=ps=localhost:1'], 'KeyError: worker'),
    (['--model=my_models.Small', '--num_stages=5'], 'num_stages=5'),
    (['--model=my_models.Small', '--num_stages=0'], '--num_stages=0'),
    (['--model=my_models.Small', '--num_stage=2'], 'Did you mean: num_stages'),
    (['--model=my_models.Small', '--recompute=perhaps'], 'always|except_last|selective|never'),
    (['--model=my_models.Small', 'num_stages=2'], "'num_stages=2' is not a flag"),
    (['--model=my_models.Small', '--num_stages=2', '--num_micro_batches=3'], 'num_micro_batches=3'),
    (['--model=my_models.Small', '--num_stages=3', '--stage_devices=cpu:0,cpu:1'], '2 devices for 3 stages'),
    (['--model=my_models.Small', '--num_stages=4', '--stage_devices=gpu:90,gpu:91,gpu:92,gpu:93'], 'GPU:90'),
    (['--model=my_models.Small', '--model_params_override=tran.max_steps:3'], 'tran'),
    (['--model=my_models.Unpipelined', '--num_stages=2'], 'has no PipeliningLayer'),
    (['--model=my_models.Small', '--job=evaler_Nope'], 'Nope'),
    (['--model=model_registry.image.resnet.ResNet20Cifar10', '--model_params_override=input.data_dir:/nowhere'],
     'data_batch_5.bin in /nowhere'),
    (['--model=my_models.Small', '--model_params_file_override=nowhere.txt'], 'The file nowhere.txt does not exist.'),
    (['--model=my_models.Ends'], 'Training stopped after step 8. The training data came to an end.'),
])
def testRefusals(launcher, tmp_path, flags, message):
  assert message in Refused(launcher.Run(f'--logdir={tmp_path}', *flags))


def testListModels(launcher):
  result = launcher.Run('--list_models', '--model=my_models.Nope')
  assert result.code == 0 and not result.err, result
  rows = {line.split()[0]: line.split()[1:5] for line in result.out.splitlines()}
  assert rows['model_registry.image.resnet.ResNetDigits'] == ['687,274', 'Digits', '1', '4']
  assert rows['model_registry.lm.transformer.TransformerL1663'] == ['83,876,914,432', 'PackedText', '1', '32']
  assert rows['model_registry.mt.transformer.Multilingual6B'] == ['6,040,979,968', 'ParallelText', '16', '32']
  assert rows['my_models.Small'] == ['658', 'Points', '1', '4']


def testLingvosModes(launcher, tmp_path):
  result = launcher.Run('--model=my_models.Small', '--mode=inspect_model', '--num_stages=2')
  assert result.code == 0, result
  assert 'total #params: 658' in ' '.join(result.out.split())
  result = launcher.Run('--model=my_models.Small', '--mode=inspect_evaler')
  assert (result.code, result.out) == (0, 'dev,test,train\n')
  result = launcher.Run('--model=my_models.Small', '--mode=inspect_params', f'--logdir={tmp_path}', '--num_stages=3')
  assert result.code == 0, result
  assert 'task.pipeline.num_stages : 3' in (tmp_path / 'train-params.txt').read_text()


def testInterrupt(launcher, folder, tmp_path):
  """The command as people type it, and Ctrl-C."""
  command = [sys.executable, '-m', 'lingvo_gpipe.trainer', '--model=my_models.Small', f'--logdir={tmp_path}',
             '--num_stages=2']
  process = subprocess.Popen(
      command + ['--model_params_override=train.max_steps:1000000'], cwd=folder, env=launcher_process.Environment(),
      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
  for line in process.stdout:
    if line.startswith('step 1/'):
      break
  process.send_signal(signal.SIGINT)
  out, err = process.communicate()
  assert process.returncode == 130, err
  assert 'Stopping' in err
  step = int(re.search(r'Stopped after step (\d+)', out).group(1))
  assert step >= 1
  assert f'The same command resumes:\n  {" ".join(command)}' in out

  resumed = launcher.Run(
      '--model=my_models.Small', f'--logdir={tmp_path}', '--num_stages=2',
      f'--model_params_override=train.max_steps:{step + 2}')
  assert resumed.code == 0, resumed
  assert f'resuming after step {step} of {step + 2}' in resumed.out
  assert list(Losses(tmp_path)) == list(range(1, step + 3))
