"""Writes docs/plan.md: what plans say, held against this machine and against the paper.

  python -m benchmarks.plan_reality && python -m benchmarks.plan_document
"""

import json
import pathlib

from absl import app
from absl import flags

from benchmarks import plan_paper

_MEASURED = flags.DEFINE_string('measured', 'build/plan.json', 'What plan_reality.py wrote.')
_OUTPUT = flags.DEFINE_string('output', 'docs/plan.md', 'The page to write.')

_DATA_NOTE = {
    'time': 'Residual blocks of benchmarks/, batch 64, two stages on virtual CPU devices with a core each. In each '
            'round the layers were timed on one core, while the other did the same, and then all cases took some '
            'steps. Measured is the median; the plan is as far from it as, at the median, from the steps of its own '
            'round, since this machine\'s speed changes by a half within minutes. The plan lets the stages share both '
            'cores.',
    'memory': '16 residual blocks, batch 512, two stages in one process. Measured is the peak of the process less '
              'that of the same with one example a micro-batch, which is TensorFlow itself.',
}


def _Table(header, rows):
  """A Markdown table; the first column is text."""
  lines = ['| ' + ' | '.join(header) + ' |', '|---|' + '---:|' * (len(header) - 1)]
  return '\n'.join(lines + ['| ' + ' | '.join(row) + ' |' for row in rows])


def _Off(predicted, measured):
  return f'{predicted / measured - 1:+.0%}'


def _Reality(results, kind, unit, form):
  rows = []
  for r in results:
    if r['kind'] == kind:
      layers = '/'.join(map(str, r['boundaries']))
      rows.append([
          f"{r['schedule']}, {r['recompute']}, cut at {layers}", str(r['micro_batches']), form(r['predicted']),
          form(r['measured']), _Off(r['predicted'], r['measured'])])
  return _Table(['', 'M', f'plan, {unit}', f'measured, {unit}', 'off by'], rows)


def _SameOrder(results):
  """How many of all pairs of cases, whose measured times differ by 5% or more, are in the right order: 'n of m'."""
  times = [(r['measured'], r['predicted']) for r in results if r['kind'] == 'time']
  pairs = [(a, b) for a in times for b in times if a[0] * 1.05 <= b[0]]
  return f'{sum(a[1] < b[1] for a, b in pairs)} of {len(pairs)}'


def _Parameters():
  rows = []
  for name, _, layers, paper in plan_paper.TRANSFORMER_L:
    found = plan_paper.Parameters(layers)
    rows.append([name, str(layers), f'{found / 1e6:,.1f}M', f'{paper / 1e6:,.1f}M', f'{found / paper - 1:+.1%}'])
  return _Table(['Transformer-L', 'layers', 'plan', 'paper', 'off by'], rows)


def _MostLayers():
  rows = []
  for name, devices, layers, _ in plan_paper.TRANSFORMER_L:
    pipeline = name != 'naive-1'
    found = plan_paper.MostLayers(devices, 32 if pipeline else 1, 'always' if pipeline else 'never')
    rows.append([name, str(devices), str(found), str(layers), _Off(found, layers)])
  return _Table(['', 'devices of 16 GB', 'plan: layers that fit', 'paper', 'off by'], rows)


def _Throughput():
  found = plan_paper.TransformerThroughput()
  rows = []
  for m, row in plan_paper.TRANSFORMER_48.items():
    for k, paper in row.items():
      rows.append([f'M={m}', str(k), f'{found[m][k]:.2f}', f'{paper:.2f}', _Off(found[m][k], paper)])
  return _Table(['Transformer-48', 'stages', 'plan', 'paper', 'off by'], rows)


def _ResNet():
  found = plan_paper.ResNetThroughput(32)
  rows = [[f'pipeline-{k}', f'{found[k]:.2f}', f'{paper:.2f}', _Off(found[k], paper)]
          for k, paper in plan_paper.RESNET_101.items()]
  return _Table(['ResNet-101', 'plan, M=32', 'paper', 'off by'], rows)


def Page(results):
  """The page's text."""
  return pathlib.Path(__file__).with_name('plan_page.md').read_text().format(
      time=_Reality(results, 'time', 'ms', lambda s: f'{1e3 * s:.0f}'),
      time_note=_DATA_NOTE['time'],
      order=_SameOrder(results),
      memory=_Reality(results, 'memory', 'MB', lambda b: f'{b / 1e6:.0f}'),
      memory_note=_DATA_NOTE['memory'],
      parameters=_Parameters(),
      most_layers=_MostLayers(),
      throughput=_Throughput(),
      resnet=_ResNet())


def Main(argv):
  del argv
  results = json.loads(pathlib.Path(_MEASURED.value).read_text())
  kinds = {r['kind'] for r in results}
  if kinds != {'time', 'memory'}:
    raise app.UsageError(f'{_MEASURED.value} has only {kinds}: run python -m benchmarks.plan_reality first.')
  pathlib.Path(_OUTPUT.value).write_text(Page(results))
  print(f'Written to {_OUTPUT.value}')


if __name__ == '__main__':
  app.run(Main)
