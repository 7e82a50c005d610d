"""Tests for errors for people."""
import io

import pytest

from lingvo_gpipe import micro_batch
from lingvo_gpipe.launcher import user_errors


def _Print(*args, **kwargs):
  out = io.StringIO()
  user_errors.Print(*args, stream=out, **kwargs)
  return out.getvalue()


def testOneParagraph():
  text = _Print(user_errors.UserError('a long\n  text ' + 'with --a-flag=value ' * 10))
  assert text.startswith('error: a long text with')
  assert max(map(len, text.splitlines())) <= 100
  assert ' '.join(text.split()).count('--a-flag=value') == 10


def testDebugShowsTheTraceback():
  with pytest.raises(user_errors.UserError) as caught:
    with user_errors.Translated('testing'):
      int('x')
  assert 'Traceback' not in _Print(caught.value)
  assert "int('x')" in _Print(caught.value, debug=True)


def testTheLibrarysErrorsStandAlone():
  with pytest.raises(user_errors.UserError) as caught:
    with user_errors.Translated('building the model'):
      micro_batch.Size(8, 3)
  with pytest.raises(ValueError) as original:
    micro_batch.Size(8, 3)
  assert str(caught.value) == str(original.value)


def testOthersSayWhere():
  message = r'testing failed: KeyError: a key \(from .*user_errors_test.py, line'
  with pytest.raises(user_errors.UserError, match=message):
    with user_errors.Translated('testing'):
      raise KeyError('a key')


def testBugsKeepTheirTraceback():
  with pytest.raises(ZeroDivisionError):
    with user_errors.Translated('testing'):
      1 / 0  # pylint: disable=pointless-statement
