"""Errors for people: one paragraph on stderr, and a traceback only where it helps.

`UserError` is raised by the launcher itself. The library raises ValueError, TypeError or LookupError with texts for
people; `Translated` turns those that come up while a model is built into a UserError. Anything else is a bug, and keeps
its traceback.
"""
import contextlib
import os
import re
import sys
import textwrap
import traceback

from lingvo.core import base_model_params

EXIT_CODE = 2
_FOR_PEOPLE = (ValueError, TypeError, LookupError, base_model_params.DatasetError)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LIBRARY = (_PACKAGE, os.path.join(os.path.dirname(_PACKAGE), 'model_registry'))
_WIDTH = 100


class UserError(Exception):
  """Something that the person at the keyboard can put right. Its text says how."""


def Print(error, debug=False, stream=None):
  """Prints an exception as one paragraph.

  Args:
    error: an exception.
    debug: whether to print its traceback first.
    stream: a text file; stderr by default.
  """
  stream = stream or sys.stderr
  if debug:
    traceback.print_exception(type(error), error, error.__traceback__, file=stream)
  text = ' '.join(str(error).split())
  paragraph = textwrap.fill(f'error: {text}', _WIDTH, break_long_words=False, break_on_hyphens=False)
  print(paragraph, file=stream, flush=True)


@contextlib.contextmanager
def Translated(doing):
  """Turns the errors that a person causes into UserErrors.

  Args:
    doing: what is being done, as in 'building the model'. Told where the error was not raised by this library, since
      then its text may not say enough.

  Raises:
    UserError: in place of a ValueError, TypeError, LookupError or Lingvo's DatasetError.
  """
  try:
    yield
  except _FOR_PEOPLE as e:
    frames = traceback.extract_tb(e.__traceback__)
    text = e.args[0] if isinstance(e, KeyError) and e.args else e  # str() of a KeyError adds quotation marks.
    if frames[-1].filename.startswith(_LIBRARY):
      raise UserError(str(text)) from e
    frame = ([f for f in frames if not re.search(r'/(tensorflow|keras)/', f.filename)] or frames)[-1]
    raise UserError(
        f'{doing} failed: {type(e).__name__}: {text} (from {frame.filename}, line {frame.lineno}; --debug shows the '
        'whole traceback)') from e
