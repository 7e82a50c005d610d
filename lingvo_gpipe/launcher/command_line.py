"""What the commands share: they parse flags after the model's module was imported, and tell errors to people."""
import gc
import os
import sys

from absl import flags
from absl import logging
import lingvo.compat as tf

from lingvo_gpipe.launcher import model_list
from lingvo_gpipe.launcher import models
from lingvo_gpipe.launcher import quiet
from lingvo_gpipe.launcher import user_errors

FLAGS = flags.FLAGS


def Parse(argv, key_flags):
  """Parses the command line, after the model's module had its chance to define flags.

  Ends the process where that can't be done.

  Args:
    argv: the program's name and its arguments.
    key_flags: names of the flags that --help shows.

  Returns:
    What isn't a flag, with the program's name first.
  """
  # What was imported stays. The garbage collector would look through it again and again while layers are made, which
  # takes a third of the time.
  gc.freeze()
  for name in key_flags:
    FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])
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


def _CheckArguments(rest):
  """Raises a UserError where an argument isn't a flag, no model is named or a file of overrides isn't there.

  Args:
    rest: what is left of the arguments, without the program's name.
  """
  if rest:
    raise user_errors.UserError(f'{rest[0]!r} is not a flag. Flags are written --name=value.')
  if not FLAGS.model:
    raise user_errors.UserError(
        'There is no --model. Name a registered model, such as --model=model_registry.image.resnet.ResNetDigits; '
        '--list_models lists them.')
  overrides = FLAGS.model_params_file_override
  if overrides and not tf.io.gfile.exists(overrides):  # Lingvo would go on without.
    raise user_errors.UserError(f'--model_params_file_override: The file {overrides} does not exist.')


def Run(command, argv):
  """Runs a command, and tells people's errors without a traceback.

  Args:
    command: a function that does what the flags say and returns the exit code; not called for --list_models.
    argv: what isn't a flag, with the program's name first.

  Returns:
    The exit code.
  """
  try:
    if not quiet.LOGS_WANTED:
      logging.set_verbosity(logging.ERROR)  # absl's app.run sets INFO just before.
    if FLAGS.list_models:
      model_list.Print(FLAGS.model)
      return 0
    _CheckArguments(argv[1:])
    return command()
  except user_errors.UserError as e:
    user_errors.Print(e, FLAGS.debug)
    quiet.UnusedGraphs()
    return user_errors.EXIT_CODE
  except KeyboardInterrupt:
    print('\nInterrupted.', file=sys.stderr)
    quiet.UnusedGraphs()
    return 130
