"""Checkpoints of a folder that was moved or copied."""
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from lingvo_gpipe import checkpoint_state

_V1 = tf.compat.v1.train


def _Save(folder, *steps):
  """Saves empty checkpoints; their state says full paths, as Lingvo writes it."""
  folder.mkdir(parents=True, exist_ok=True)
  paths = [str(folder / f'ckpt-{step:08d}') for step in steps]
  for path in paths:
    with tf.Graph().as_default():
      tf.raw_ops.SaveV2(prefix=path, tensor_names=['x'], shape_and_slices=[''], tensors=[np.float32(0)])
      with tf.compat.v1.Session() as sess:
        sess.run(tf.compat.v1.get_default_graph().get_operations()[-1])
  times = [1e9 + step for step in steps]
  _V1.update_checkpoint_state(str(folder), paths[-1], paths, all_model_checkpoint_timestamps=times)
  return paths


def _State(folder):
  state = _V1.get_checkpoint_state(str(folder))
  return state.model_checkpoint_path, list(state.all_model_checkpoint_paths), list(
      state.all_model_checkpoint_timestamps)


@pytest.fixture(name='folder')
def _Folder(tmp_path):
  """With the checkpoints of two steps."""
  _Save(tmp_path / 'old/train', 4, 8)
  return tmp_path / 'old/train'


@pytest.mark.parametrize('take', [shutil.move, shutil.copytree])
def testElsewhere(folder, tmp_path, take):
  new = tmp_path / 'new'
  take(folder, new)
  paths = [str(new / f'ckpt-{step:08d}') for step in (4, 8)]
  assert checkpoint_state.Latest(str(new)) == paths[-1]
  checkpoint_state.Settle(str(new))
  assert _State(new) == (paths[-1], paths, [1e9 + 4, 1e9 + 8])
  assert _V1.latest_checkpoint(str(new)) == paths[-1]
  assert sorted(p.name for p in new.iterdir() if 'ckpt' not in p.name) == ['checkpoint']


def testWhatWasLeftBehindIsForgotten(folder, tmp_path):
  new = tmp_path / 'new'
  new.mkdir()
  for path in [folder / 'checkpoint', *folder.glob('ckpt-00000008.*')]:
    shutil.copy(path, new)
  shutil.rmtree(folder)
  checkpoint_state.Settle(str(new))
  latest = str(new / 'ckpt-00000008')
  assert _State(new) == (latest, [latest], [1e9 + 8])


def testWithoutTheNewestTheOneBeforeIs(folder, tmp_path):
  new = tmp_path / 'new'
  new.mkdir()
  for path in [folder / 'checkpoint', *folder.glob('ckpt-00000004.*')]:
    shutil.copy(path, new)
  before = str(new / 'ckpt-00000004')
  assert checkpoint_state.Latest(str(new)) == before
  checkpoint_state.Settle(str(new))
  assert _State(new) == (before, [before], [1e9 + 4])


def testWithoutAnyNothingChanges(folder, tmp_path):
  new = tmp_path / 'new'
  new.mkdir()
  shutil.copy(folder / 'checkpoint', new)
  before = _State(new)
  checkpoint_state.Settle(str(new))
  assert _State(new) == before
  assert checkpoint_state.Latest(str(new)) == before[0]
  shutil.rmtree(folder)
  assert checkpoint_state.Latest(str(new)) is None


def testInItsPlace(folder):
  before = (folder / 'checkpoint').read_text()
  checkpoint_state.Settle(str(folder))
  assert (folder / 'checkpoint').read_text() == before


def testNoCheckpoints(tmp_path):
  checkpoint_state.Settle(str(tmp_path / 'none'))
  assert checkpoint_state.Latest(str(tmp_path / 'none')) is None


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
