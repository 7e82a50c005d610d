"""Which files texts come from."""

import glob
import os
import sysconfig
import zlib

# One in so many files is for tests.
_TEST_SHARE = 20
# What isn't the standard library itself, and isn't on every machine.
_NOT_LIBRARY = ('site-packages', 'dist-packages', 'test', 'tests')


def Find(patterns):
  """Finds files by glob patterns.

  Args:
    patterns: A pattern, or several with commas between.

  Returns:
    Their paths, a sorted list.

  Raises:
    ValueError: a pattern matches no file.
  """
  found = set()
  for pattern in filter(None, (p.strip() for p in patterns.split(','))):
    matches = [p for p in glob.glob(pattern, recursive=True)
               if os.path.isfile(p)]
    if not matches:
      raise ValueError(
          f'No file matches {pattern!r} (looked for from {os.getcwd()}). Put '
          "the texts there, or name other files: --model_params_override='"
          "input.train_files: /my/texts/*.txt'.")
    found.update(matches)
  if not found:
    raise ValueError(
        f'Text files are named by {patterns!r}; there must be a pattern, as in '
        '/my/texts/*.txt.')
  return sorted(found)


def PythonSources():
  """Finds Python's standard library: real text that is on every machine.

  Returns:
    The paths of its .py files, a sorted list.

  Raises:
    ValueError: there are none.
  """
  root = sysconfig.get_paths()['stdlib']
  found = []
  for folder, folders, names in os.walk(root):
    folders[:] = [f for f in folders if f not in _NOT_LIBRARY]
    found += [os.path.join(folder, n) for n in names if n.endswith('.py')]
  if not found:
    raise ValueError(
        f"No source files (*.py) of Python's standard library were found under "
        f'{root}. Use a Python that comes with them, or text files of your own: '
        "--model_params_override='input.train_files: /my/texts/*.txt'.")
  return sorted(found)


def Split(paths, split):
  """Those of some files that are to train on, or to test with.

  Which ones depends on their names alone, below the folder that holds all.

  Args:
    paths: A list of paths.
    split: 'train' or 'test'.

  Returns:
    A list of paths, in an order that is mixed but fixed.

  Raises:
    ValueError: there are too few files: this split has none.
  """
  root = os.path.commonpath([os.path.dirname(p) for p in paths])
  found = []
  for path in paths:
    relative = os.path.relpath(path, root).replace(os.sep, '/')
    number = zlib.crc32(relative.encode())
    if (number % _TEST_SHARE == 0) == (split == 'test'):
      found.append((number, path))
  if not found:
    raise ValueError(
        f'Of {len(paths)} text files under {root}, none is for the {split} '
        f'split, which is made by name (one in {_TEST_SHARE} is for tests). '
        'Name test files apart: --model_params_override='
        "'input.test_files: /my/texts/*.txt'.")
  return [path for _, path in sorted(found)]
