"""Measures the peak memory of a training process, beside lingvo.core.gpipe's, and draws docs/memory.png.

  python -m benchmarks.memory
  python -m benchmarks.memory --draw_only

Residual blocks over two stages: more and more blocks with one batch, and more and more micro-batches of one size.
"""

import json
import pathlib
import sys

from absl import app
from absl import flags
import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

from benchmarks import cases
from benchmarks import client
from benchmarks import workloads

_OUTPUT = flags.DEFINE_string('output', 'build/memory.json', 'The file to write. What it has already is kept.')
_PICTURE = flags.DEFINE_string('picture', 'docs/memory.png', 'The picture to draw.')
_DRAW_ONLY = flags.DEFINE_bool('draw_only', False, 'Draw the picture of what the file has.')


def _PeakMb(case):
  """The peak memory, in MB, of a process that runs a case's warm-up steps."""
  worker = client.Start(case, timeout=900)
  try:
    worker.Ready()
    return worker.Quit()
  finally:
    worker.Kill()


def _Measure(wanted, output):
  """Measures what the file lacks; returns {case: MB} and whether all is well."""
  peaks, ok = {}, True
  if output.exists():
    peaks = {cases.Case(*case): peak_mb for case, peak_mb in json.loads(output.read_text())}
  for case in wanted:
    if case in peaks or _DRAW_ONLY.value:
      continue
    try:
      peaks[case] = _PeakMb(case)
    except client.Failed as e:
      ok = False
      print(f'{case}: failed: {e}')
      continue
    print(f'{case.workload:18} {cases.Label(case):24} {case.micro_batches:3} micro-batches {peaks[case]:6.0f} MB',
          flush=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(list(peaks.items()), indent=1) + '\n')
  return peaks, ok


def _Lines(axes, wanted, peaks, x, colors):
  """A line for each implementation and mode; x: the case's place on the axis; colors: {label: color}."""
  lines = {}
  for case in wanted:
    if case in peaks:
      lines.setdefault(cases.Label(case), []).append((x(case), peaks[case]))
  for label, points in lines.items():
    style = '--' if label in _NAMES else '-'
    # Of ours, the label names the implementation first.
    name = _NAMES.get(label, label.removeprefix('gpipe ').replace(' ', ', '))
    axes.plot(*zip(*points), style, color=colors[label], marker='o', markersize=4, label=name)
  axes.set_xticks(sorted({x(case) for case in wanted}))
  axes.set_ylim(bottom=0)
  axes.set_ylabel('peak memory of the process, MB')
  for side in ('top', 'right'):
    axes.spines[side].set_visible(False)


_NAMES = {'none gpipe never': 'no pipeline', 'lingvo gpipe always': 'lingvo.core.gpipe'}


def _Draw(by_depth, by_micro_batches, peaks, path):
  labels = dict.fromkeys(map(cases.Label, by_depth + by_micro_batches))
  colors = {label: f'C{i}' for i, label in enumerate(labels)}
  figure, axes = plt.subplots(1, 2, figsize=(11, 4.5))
  _Lines(axes[0], by_depth, peaks, lambda case: workloads.Get(case.workload).num_layers, colors)
  axes[0].set_xlabel('residual blocks')
  axes[0].set_title('2 stages, 16 micro-batches, batch 512', fontsize=10, loc='left')
  _Lines(axes[1], by_micro_batches, peaks, lambda case: case.micro_batches, colors)
  axes[1].set_xlabel('micro-batches of 8 examples')
  axes[1].set_title('2 stages, 16 residual blocks', fontsize=10, loc='left')
  axes[0].legend(fontsize=8, frameon=False)
  figure.tight_layout()
  figure.savefig(path, dpi=110)


def Main(argv):
  del argv
  by_depth, by_micro_batches = cases.MemoryCases()
  peaks, ok = _Measure(by_depth + by_micro_batches, pathlib.Path(_OUTPUT.value))
  _Draw(by_depth, by_micro_batches, peaks, _PICTURE.value)
  print(f'Written to {_OUTPUT.value} and {_PICTURE.value}')
  sys.exit(0 if ok else 1)


if __name__ == '__main__':
  app.run(Main)
