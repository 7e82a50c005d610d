"""How much faster one core is while the others rest: what the limit of `make bench` doesn't know.

  python -m benchmarks.cores

That limit divides the time on one core, with the others idle, by the number of cores. Where cores share caches, memory
bandwidth, power or a host, K busy cores do less than K times the work of one. Each of two processes runs the layers in
sequence on a core of its own, in turns alone and at once.
"""

import statistics

from absl import app
from absl import flags

from benchmarks import cases
from benchmarks import client

_CORES = flags.DEFINE_integer('cores', 2, 'How many cores are busy at once.', lower_bound=2)
_ROUNDS = flags.DEFINE_integer('rounds', 8, 'How often.', lower_bound=1)
_STEPS = flags.DEFINE_integer('steps', 5, 'How many steps a turn has.', lower_bound=1)


def _Turn(workers):
  """The median time of a step while these workers all run."""
  for worker in workers:
    worker.Send(f'steps {_STEPS.value}')
  return statistics.median(t for worker in workers for t in worker.Times())


def Main(argv):
  del argv
  case = cases.Group('residual', 2, 8)[0]
  workers = []
  try:
    for core in range(_CORES.value):
      with client.OnCore(core):
        workers.append(client.Start(case))
    for worker in workers:
      worker.Ready()
    alone, at_once = [], []
    for _ in range(_ROUNDS.value):
      alone.append(_Turn(workers[:1]))
      at_once.append(_Turn(workers))
  finally:
    for worker in workers:
      worker.Kill()
  ratio = statistics.median(a / b for a, b in zip(alone, at_once))
  print(f'{case.workload}: a step on one core takes {statistics.median(alone):.3f} s alone, '
        f'{statistics.median(at_once):.3f} s while {_CORES.value} cores do the same: together they do '
        f'{ratio * _CORES.value:.2f} times the work of one.')


if __name__ == '__main__':
  app.run(Main)
