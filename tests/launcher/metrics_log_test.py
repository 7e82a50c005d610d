"""Tests for the metrics file."""
import numpy as np

from lingvo_gpipe.launcher import metrics_log


def testWritesScalarsAndReadsTheLaterOfTwoLines(tmp_path):
  path = str(tmp_path / 'metrics.jsonl')
  log = metrics_log.MetricsLog(path)
  log.Write(1, {'loss': np.float32(0.1), 'accuracy': np.array([0.5]), 'histogram': np.zeros(3)})
  log.Write(2, {'loss': 2.})
  # A crash lost step 2; the resumed run appends.
  log = metrics_log.MetricsLog(path)
  log.Write(2, {'loss': np.float64('nan')})
  log.Write(3, {'loss': 3})
  with open(path, 'a') as f:
    f.write('{"step": 4, "lo')  # Killed while it wrote.
  log = metrics_log.MetricsLog(path)
  log.Write(5, {})
  rows = metrics_log.Read(path)
  assert [row['step'] for row in rows] == [1, 2, 3, 5]
  assert rows[0] == {'step': 1, 'loss': float(np.float32(0.1)), 'accuracy': 0.5}
  assert np.isnan(rows[1]['loss'])
