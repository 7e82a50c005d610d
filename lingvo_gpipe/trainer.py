r"""Trains a registered model, its layers pipelined over devices.

  python -m lingvo_gpipe.trainer --model=model_registry.image.resnet.ResNetDigits --logdir=/tmp/digits \
    --num_stages=2 --num_micro_batches=4

Every flag of Lingvo's trainer works too (--helpfull lists them). By default one process trains synchronously on this
machine, saves checkpoints to LOGDIR/train, and ends with an evaluation on the model's Test dataset. Ctrl-C saves a
checkpoint; the same command resumes.
"""
import os
import uuid

from lingvo_gpipe.launcher import quiet

# pylint: disable=g-import-not-at-top
with quiet.Stderr():
  from absl import app
  from absl import flags
  from lingvo import trainer as lingvo_trainer  # pylint: disable=unused-import
  import lingvo.compat as tf
  from lingvo.core import cluster_factory
  from lingvo.core import py_utils
  from lingvo.core import tpu_embedding_layers_v2
  from lingvo.core import tpu_embedding_manager

  from lingvo_gpipe import checkpoint_state
  from lingvo_gpipe.launcher import cluster
  from lingvo_gpipe.launcher import command_line
  from lingvo_gpipe.launcher import launcher_flags
  from lingvo_gpipe.launcher import manager
  from lingvo_gpipe.launcher import user_errors
# pylint: enable=g-import-not-at-top

FLAGS = flags.FLAGS
# These work without a log directory.
_MODES_WITHOUT_LOGDIR = ('inspect_model', 'inspect_evaler', 'inspect_decoder', 'shell')


def _ParseFlags(argv):
  """Parses the command line; returns what isn't a flag, with the program's name first."""
  launcher_flags.SetDefaults()
  return command_line.Parse(argv, launcher_flags.OWN_FLAGS + launcher_flags.COMMON_FLAGS)


def _CheckLogdir():
  """Makes the log directory; raises a UserError where that can't be done or nothing can be written there."""
  if FLAGS.mode in _MODES_WITHOUT_LOGDIR:
    return
  if not FLAGS.logdir:
    raise user_errors.UserError('There is no --logdir: name a directory for checkpoints and logs.')
  if '://' not in FLAGS.logdir:
    # Lingvo writes a relative path into the checkpoint's state, where TensorFlow takes it as relative to that file.
    FLAGS.logdir = os.path.abspath(FLAGS.logdir)
  train = os.path.join(FLAGS.logdir, 'train')
  try:
    tf.io.gfile.makedirs(train)
    tried = os.path.join(train, f'.tried_{uuid.uuid4().hex}')
    with tf.io.gfile.GFile(tried, 'w') as f:
      f.write('')
    tf.io.gfile.remove(tried)
    # Evaluation leaves them alone where it finds them: somebody may be training.
    if not FLAGS.job.startswith(('evaler', 'decoder')) or not tf.train.latest_checkpoint(train):
      checkpoint_state.Settle(train)
  except tf.errors.OpError as e:
    raise user_errors.UserError(f'The directory --logdir={FLAGS.logdir} can\'t be written: {e.message}') from e


def _Run():
  """Does what the flags say; returns the exit code."""
  _CheckLogdir()
  launcher_flags.ApplyLocalDefaults()
  # As the main program of Lingvo's trainer does it.
  if FLAGS.disable_tf2:
    tf.disable_v2_behavior()
  py_utils.SetEagerMode(FLAGS.use_eager)
  tf.config.run_functions_eagerly(FLAGS.run_functions_eagerly)
  if FLAGS.enable_tf_data_debug_mode:
    tf.data.experimental.enable_debug_mode()
  tpu_embedding_layers_v2.TPU_EMBEDDING_MANAGER = tpu_embedding_manager.TPUEmbeddingManager()
  cluster_factory.SetCluster(cluster.StageCluster)
  return manager.RunnerManager(FLAGS.model).Start()


def main(argv):
  """Does what the flags say; returns the exit code."""
  return command_line.Run(_Run, argv)


def main_cli():
  """The console script's entry."""
  app.run(main, flags_parser=_ParseFlags)


if __name__ == '__main__':
  main_cli()
