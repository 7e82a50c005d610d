"""Times of layers, kept in a file from run to run."""

import hashlib
import json
import os
import tempfile

import lingvo.compat as tf


class TimeCache:
  """{what was timed: (seconds forward, seconds backward)} in a JSON file.

  The file is replaced as a whole, so that it is never half written.
  """

  def __init__(self, path):
    """Constructor.

    Args:
      path: Of the file, which needn't be there yet. None: nothing is kept.

    Raises:
      ValueError: The file isn't such a cache.
    """
    self._path = path
    self._entries = self._Read()

  def Get(self, key):
    """The times of a key, a dict of text; None if it isn't there."""
    entry = self._entries.get(_Digest(key))
    return entry and (entry['forward_seconds'], entry['backward_seconds'])

  def Add(self, key, times):
    """Adds the times of a key, to the file too."""
    if not self._path:
      return
    shown = {k: v for k, v in key.items() if k != 'params'}
    # Another process may have added some since.
    self._entries = dict(self._Read(), **{
        _Digest(key): dict(
            shown, forward_seconds=times[0], backward_seconds=times[1])
    })
    folder = os.path.dirname(self._path) or '.'
    tf.io.gfile.makedirs(folder)
    with tempfile.NamedTemporaryFile(
        'w', dir=folder, delete=False, suffix='.tmp') as f:
      json.dump(self._entries, f, indent=1, sort_keys=True)
    os.replace(f.name, self._path)

  def _Read(self):
    if not self._path or not os.path.exists(self._path):
      return {}
    try:
      with open(self._path) as f:
        entries = json.load(f)
      return {
          key: dict(
              entry,
              forward_seconds=float(entry['forward_seconds']),
              backward_seconds=float(entry['backward_seconds']))
          for key, entry in entries.items()
      }
    except (AttributeError, KeyError, TypeError, ValueError) as e:
      raise ValueError(
          f'{self._path} does not hold times of layers as they are written '
          f'there: {e}. Remove it, and they are measured again.') from e


def _Digest(key):
  return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
