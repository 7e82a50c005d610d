"""Draws docs/schedule.png from lingvo_gpipe/schedule.py.

python -m docs.draw_schedule
"""

import os

import matplotlib
matplotlib.use('Agg')
import matplotlib.pyplot as plt

from lingvo_gpipe import schedule

_COLORS = {'forward': '#4c78a8', 'recompute': '#f2cf5b', 'backward': '#54a24b'}


def _Draw(axes, work, title):
  """One schedule: a row a stage, time to the right."""
  stages = max(w.stage for w in work) + 1
  for w in work:
    axes.barh(
        w.stage, w.end - w.start, left=w.start, height=0.8, edgecolor='white',
        color=_COLORS[w.kind], label=w.kind)
    axes.text((w.start + w.end) / 2, w.stage, str(w.micro_batch), ha='center',
              va='center', fontsize=8)
  axes.set_title(
      f'{title}: idle {schedule.BubbleFraction(work):.0%}', fontsize=10,
      loc='left')
  axes.set_yticks(range(stages), [f'stage {k}' for k in range(stages)])
  axes.set_xlim(0, 49)
  for side in ('top', 'right', 'left'):
    axes.spines[side].set_visible(False)


def main():
  figure, axes = plt.subplots(3, 1, figsize=(10, 6), sharex=True)
  _Draw(axes[0], schedule.FillDrain(4, 1, forward=4, recompute=0, backward=8),
        '4 stages, no micro-batches')
  _Draw(axes[1], schedule.FillDrain(4, 4),
        '4 micro-batches, recompute=always')
  _Draw(axes[2], schedule.FillDrain(4, 4, recompute=0),
        '4 micro-batches, recompute=never')
  axes[2].set_xlabel('time, in forward passes of a micro-batch through a stage')
  handles = [plt.Rectangle((0, 0), 1, 1, color=c) for c in _COLORS.values()]
  figure.legend(handles, list(_COLORS), loc='upper right', ncol=3, fontsize=9,
                frameon=False)
  figure.tight_layout()
  figure.savefig(
      os.path.join(os.path.dirname(__file__), 'schedule.png'), dpi=110)


if __name__ == '__main__':
  main()
