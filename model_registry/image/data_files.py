"""Finds a data set's files on disk, and says what is missing where they aren't.

A data set comes in one or more layouts: the files that its makers publish, or
those that tensorflow-datasets prepares. Both are read directly, so that package
need not be there. A layout is a folder below the data folder, and files in it.
"""

import os
import re

import lingvo.compat as tf

# Where tensorflow-datasets puts what it prepares.
_PREPARED = '~/tensorflow_datasets'


class MissingDataError(LookupError):
  """Data files aren't there, or not all of them. The text says what to do."""


class NamedFiles:
  """Files with fixed names."""

  def __init__(self, names, folders=('',)):
    """Constructor.

    Args:
      names: The files' names, in order.
      folders: Folders below the data folder in which to look for them.
    """
    self._names = names
    self._folders = folders

  def Find(self, root):
    """Returns the paths below the folder `root`; None if there are none.

    Raises:
      MissingDataError: some are there and some aren't.
    """
    for folder in self._folders:
      paths = [os.path.join(root, folder, name) for name in self._names]
      found = [p for p in paths if tf.io.gfile.exists(p)]
      if found:
        _CheckComplete(os.path.join(root, folder), self._names, found)
        return paths
    return None

  def Describe(self, root):
    """Returns what Find looks for, in words."""
    folders = [os.path.join(root, f).rstrip('/') for f in self._folders]
    return f'{_Abridged(self._names)} in {" or ".join(folders)}'


class ShardedFiles:
  """Files named PREFIX-00000-of-00005 to PREFIX-00004-of-00005."""

  def __init__(self, prefix, folder=''):
    """Constructor.

    Args:
      prefix: What the names begin with.
      folder: A folder below the data folder. It may hold `*`; of several that
        match, the last is taken (tensorflow-datasets has one a version).
    """
    self._prefix = prefix
    self._folder = folder

  def Find(self, root):
    """Returns the paths below the folder `root`, in order; None for none.

    Raises:
      MissingDataError: some are there and some aren't.
    """
    pattern = os.path.join(root, self._folder, self._prefix + '-?????-of-?????')
    found = tf.io.gfile.glob(pattern)
    if not found:
      return None
    folder = max({os.path.dirname(p) for p in found}, key=_Version)
    found = [p for p in found if os.path.dirname(p) == folder]
    count = int(max(p.rpartition('-')[2] for p in found))
    names = [f'{self._prefix}-{i:05d}-of-{count:05d}' for i in range(count)]
    _CheckComplete(folder, names, found)
    return [os.path.join(folder, name) for name in names]

  def Describe(self, root):
    """Returns what Find looks for, in words."""
    folder = os.path.join(root, self._folder).rstrip('/')
    return f'{self._prefix}-*-of-* in {folder}'


def PreparedFiles(dataset, split):
  """The files of a split as tensorflow-datasets prepares them."""
  return ShardedFiles(f'{dataset}-{split}.tfrecord', f'{dataset}/*')


def Find(what, data_dir, default_dir, original, prepared, how_to_get):
  """Finds the files of a data set.

  Args:
    what: The data set's name, for messages.
    data_dir: The folder to look in. If empty, default_dir and then the folder
      of tensorflow-datasets.
    default_dir: Where the files lie if nobody says anything else.
    original: NamedFiles or ShardedFiles, the makers' own.
    prepared: ShardedFiles, those of tensorflow-datasets.
    how_to_get: Sentences that say how to get them, with {folder}.

  Returns:
    (original or prepared, the one that was found; the list of its paths).

  Raises:
    MissingDataError: there are no files, or not all of them.
  """
  if data_dir:
    places = [(data_dir, original), (data_dir, prepared)]
  else:
    places = [(default_dir, original), (_PREPARED, prepared)]
  for root, layout in places:
    paths = layout.Find(os.path.expanduser(root))
    if paths:
      return layout, paths
  looked_for = ', and for '.join(layout.Describe(root) for root, layout in places)
  root = data_dir or default_dir
  raise MissingDataError(
      f'The files of {what} are missing. Looked for {looked_for}. '
      f'{how_to_get.format(folder=root)} If they are elsewhere: '
      "--model_params_override='input.data_dir: FOLDER'.")


def _CheckComplete(folder, names, found):
  """Raises a MissingDataError if some names aren't among the found paths."""
  missing = sorted(set(names) - {os.path.basename(p) for p in found})
  if missing:
    raise MissingDataError(
        f'{len(missing)} of {len(names)} data files are missing in {folder}: '
        f'{_Abridged(missing)}. Get them again, or name another folder as the '
        "input generator's data_dir.")


def _Abridged(names):
  if len(names) <= 6:
    return ', '.join(names)
  return ', '.join(names[:3]) + f', ... {names[-1]}'


def _Version(folder):
  """A key that sorts 3.0.10 after 3.0.2."""
  return [int(n) for n in re.findall(r'\d+', os.path.basename(folder))]
