r"""Trains a registered model, its layers pipelined over devices.

  python -m lingvo_gpipe.trainer --model=model_registry.image.resnet.ResNetDigits --logdir=/tmp/digits \
    --num_stages=2 --num_micro_batches=4

Every flag of Lingvo's trainer works too (--helpfull lists them). By default one process trains synchronously on this
machine, saves checkpoints to LOGDIR/train, and ends with an evaluation on the model's Test dataset. Ctrl-C saves a
checkpoint; the same command resumes.
"""
import os
import sys

from lingvo_gpipe.launcher import quiet

# pylint: disable=g-import-not-at-top
with quiet.Stderr():
  from absl import app
  from absl import flags
  from absl import logging
  from lingvo import trainer as lingvo_trainer  # pylint: disable=unused-import
  import lingvo.compat as tf
  from lingvo.core import cluster_factory
  from lingvo.core import py_utils
  from lingvo.core import tpu_embedding_layers_v2
  from lingvo.core import tpu_embedding_manager

  from lingvo_gpipe.launcher import cluster
  from lingvo_gpipe.launcher import launcher_flags
  from lingvo_gpipe.launcher import manager
  from lingvo_gpipe.launcher import models
  from lingvo_gpipe.launcher import user_errors
# pylint: enable=g-import-not-at-top

FLAGS = flags.FLAGS
# These work without a log directory.
_MODES_WITHOUT_LOGDIR = ('inspect_model', 'inspect_evaler', 'inspect_decoder', 'shell')


def _ParseFlags(argv):
  """Parses the command line, after the model's module had its chance to define flags.

  Args:
    argv: the program's name and its arguments.

  Returns:
    What isn't a flag, with the program's name first.
  """
  for name in launcher_flags.OWN_FLAGS + launcher_flags.COMMON_FLAGS:
    FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])  # For --help.
  launcher_flags.SetDefaults()
  try:
    return _ParseTwice(argv)
  except (flags.Error, user_errors.UserError) as e:
    # Flags that can't be read say nothing about --debug either.
    user_errors.Print(e, FLAGS.is_parsed() and FLAGS.debug)
    sys.exit(user_errors.EXIT_CODE)


def _ParseTwice(argv):
  """Parses what is known, imports the model's module, and then parses everything."""
  FLAGS(argv, known_only=True)
  if os.getcwd() not in sys.path and '' not in sys.path:
    sys.path.insert(0, os.getcwd())  # As `python -m` does, for models of one's own.
  if FLAGS.model and not FLAGS.list_models:
    models.Import(FLAGS.model)
  FLAGS.unparse_flags()
  return FLAGS(argv)


def _CheckFlags(rest):
  """Raises a UserError where a needed flag is missing or an argument isn't a flag."""
  if rest:
    raise user_errors.UserError(f'{rest[0]!r} is not a flag. Flags are written --name=value.')
  if not FLAGS.model:
    raise user_errors.UserError(
        'There is no --model. Name a registered model, such as --model=model_registry.image.resnet.ResNetDigits; '
        '--list_models lists them.')
  if FLAGS.mode in _MODES_WITHOUT_LOGDIR:
    return
  if not FLAGS.logdir:
    raise user_errors.UserError('There is no --logdir: name a directory for checkpoints and logs.')
  if '://' not in FLAGS.logdir:
    # Lingvo writes a relative path into the checkpoint's state, where TensorFlow takes it as relative to that file.
    FLAGS.logdir = os.path.abspath(FLAGS.logdir)
  try:
    tf.io.gfile.makedirs(FLAGS.logdir)
  except tf.errors.OpError as e:
    raise user_errors.UserError(f'The directory --logdir={FLAGS.logdir} can\'t be made: {e.message}') from e


def _Run(argv):
  """Does what the flags say; returns the exit code."""
  if not quiet.LOGS_WANTED:
    logging.set_verbosity(logging.ERROR)  # absl's app.run sets INFO just before.
  if FLAGS.list_models:
    models.List()
    return 0
  _CheckFlags(argv[1:])
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
  """Runs `_Run`, and tells people's errors without a traceback."""
  try:
    return _Run(argv)
  except user_errors.UserError as e:
    user_errors.Print(e, FLAGS.debug)
    # Of what TensorFlow finds wrong with a graph that is thrown away half-used, nobody needs to hear.
    logging.set_verbosity(logging.FATAL)
    tf.get_logger().setLevel('CRITICAL')
    return user_errors.EXIT_CODE
  except KeyboardInterrupt:
    print('\nInterrupted.', file=sys.stderr)
    return 130


def main_cli():
  """The console script's entry."""
  app.run(main, flags_parser=_ParseFlags)


if __name__ == '__main__':
  main_cli()
