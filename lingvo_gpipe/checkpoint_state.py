"""Finds checkpoints in their folder, also where that was moved or copied.

TensorFlow keeps a list of them in the folder, the state, and Lingvo writes full
paths there. Of a folder that was moved no checkpoint is found then, training
begins anew, and Lingvo, which deletes old ones by their numbers, deletes those
that were moved. Of a copy the original's are taken.
"""

import os
import uuid

from google.protobuf import text_format
import lingvo.compat as tf


def Latest(folder):
  """The newest checkpoint in a folder, a path; None if there is none."""
  state = tf.train.get_checkpoint_state(folder)
  here = _Here(folder, state) if state else []
  return here[-1] if here else tf.train.latest_checkpoint(folder)


def Settle(folder):
  """Rewrites the state of a folder that was moved or copied to name its own.

  What isn't in the folder is left out; nothing changes where none is.

  Args:
    folder: An absolute path, or a URL.
  """
  path = os.path.join(folder, 'checkpoint')
  state = tf.train.get_checkpoint_state(folder)
  here = _Here(folder, state) if state else []
  listed = list(state.all_model_checkpoint_paths) if state else []
  if not here or here == listed:
    return
  before = _Read(path)
  names = {os.path.basename(p) for p in here}
  if len(state.all_model_checkpoint_timestamps) == len(listed):
    state.all_model_checkpoint_timestamps[:] = [
        t for t, p in zip(state.all_model_checkpoint_timestamps, listed)
        if os.path.basename(p) in names
    ]
  state.all_model_checkpoint_paths[:] = here
  state.model_checkpoint_path = here[-1]
  # Not tf.train.update_checkpoint_state: in a URL's folder it writes relative
  # paths, which Lingvo's saver can't read.
  scratch = f'{path}.{uuid.uuid4().hex}'
  with tf.io.gfile.GFile(scratch, 'w') as f:
    f.write(text_format.MessageToString(state))
  if _Read(path) == before:  # No job has saved one meanwhile.
    tf.io.gfile.rename(scratch, path, overwrite=True)
  else:
    tf.io.gfile.remove(scratch)


def _Here(folder, state):
  """The paths in this folder of a state's checkpoints, the newest last."""
  names = [os.path.basename(p) for p in state.all_model_checkpoint_paths]
  newest = os.path.basename(state.model_checkpoint_path)
  paths = [os.path.join(folder, n) for n in names if n != newest]
  paths.append(os.path.join(folder, newest))
  return [p for p in paths if tf.io.gfile.exists(p + '.index')]


def _Read(path):
  with tf.io.gfile.GFile(path) as f:
    return f.read()
