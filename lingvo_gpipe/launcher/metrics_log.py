"""The metrics of every step, one JSON object a line, for programs to read."""
import json
import os

import lingvo.compat as tf
import numpy as np


class MetricsLog:
  """Appends to a file such lines as {"step": 12, "loss": 0.5, "accuracy": 0.9}.

  A step that a crash lost and a resumed run did again has two lines; `Read` takes the later one.
  """

  def __init__(self, path):
    self._file = tf.io.gfile.GFile(path, 'a')
    if _EndsWithinALine(path):
      self._file.write('\n')

  def Write(self, step, values):
    """Writes the metrics of a step.

    Args:
      step: number of steps done.
      values: {name: scalar}; what isn't a scalar is left out.
    """
    row = {'step': int(step)}
    row.update((name, np.asarray(value).item()) for name, value in values.items() if np.size(value) == 1)
    self._file.write(json.dumps(row) + '\n')
    self._file.flush()  # A killed run keeps what it has done.


def Read(path):
  """Returns the rows of a metrics file, a list of dicts in the order of their steps."""
  rows = {}
  with tf.io.gfile.GFile(path) as f:
    for line in f:
      try:
        row = json.loads(line)
      except ValueError:
        continue  # The process was killed while it wrote this line.
      rows[row['step']] = row
  return [row for _, row in sorted(rows.items())]


def _EndsWithinALine(path):
  if not tf.io.gfile.exists(path) or not tf.io.gfile.stat(path).length:
    return False
  with tf.io.gfile.GFile(path, 'rb') as f:
    f.seek(-1, os.SEEK_END)
    return f.read(1) != b'\n'
