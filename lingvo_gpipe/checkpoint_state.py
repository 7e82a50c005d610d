"""Finds checkpoints in their folder, also where that was moved or copied.

TensorFlow keeps a list of them in the folder, the state, and Lingvo writes full
paths there. Of a folder that was moved no checkpoint is found then, training
begins anew, and Lingvo, which deletes old ones by their numbers, deletes those
that were moved. Of a copy the original's are taken.
"""

import os

from google.protobuf import text_format
import lingvo.compat as tf


def Latest(folder):
  """The newest checkpoint in a folder, a path; None if there is none."""
  state = tf.train.get_checkpoint_state(folder)
  here = _Here(folder, state.model_checkpoint_path) if state else None
  return here or tf.train.latest_checkpoint(folder)


def Settle(folder):
  """Rewrites the state of a folder that was moved or copied to name its own.

  Nothing changes where the newest checkpoint isn't in the folder. What else
  isn't there is left out.

  Args:
    folder: An absolute path, or a URL.
  """
  state = tf.train.get_checkpoint_state(folder)
  if state is None:
    return
  paths = list(state.all_model_checkpoint_paths)
  here = [_Here(folder, path) for path in paths]
  latest = _Here(folder, state.model_checkpoint_path)
  if not latest or here == paths:
    return
  if len(state.all_model_checkpoint_timestamps) == len(paths):
    state.all_model_checkpoint_timestamps[:] = [
        t for t, path in zip(state.all_model_checkpoint_timestamps, here) if path
    ]
  state.all_model_checkpoint_paths[:] = [path for path in here if path]
  state.model_checkpoint_path = latest
  # Not tf.train.update_checkpoint_state: in a URL's folder it writes relative
  # paths, which Lingvo's saver can't read.
  scratch = os.path.join(folder, 'checkpoint.moved')
  with tf.io.gfile.GFile(scratch, 'w') as f:
    f.write(text_format.MessageToString(state))
  tf.io.gfile.rename(scratch, os.path.join(folder, 'checkpoint'), overwrite=True)


def _Here(folder, path):
  """The path in this folder of a checkpoint of that name, None if it lacks one."""
  here = os.path.join(folder, os.path.basename(path))
  return here if tf.io.gfile.exists(here + '.index') else None
