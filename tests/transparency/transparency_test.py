"""A pipeline gives what the same layers in sequence on one device give."""

import sys

import pytest

from lingvo_gpipe import stacked_recurrent
from tests.transparency import harness
from tests.transparency import stacks

_STAGES = (1, 2, 3, 4)
_MICRO_BATCHES = (1, 2, 4, 8)
# (schedule, recompute). With 1f1b, except_last is always.
_MODES = [('gpipe', r) for r in stacked_recurrent.RECOMPUTE_MODES] + [
    ('1f1b', r) for r in ('never', 'always', 'selective')
]
# Results in sequence, by (stack, number of micro-batches).
_EXPECTED = {}


def _Selection(name):
  """A few points of the grid, that hold each K, M and optimizer.

  Which of them meet, and in which mode, differs from stack to stack.

  Args:
    name: The name of a stack.

  Returns:
    {(K, M, mode): the optimizer to train with}.
  """
  i = list(stacks.STACKS).index(name)
  return {(k, _MICRO_BATCHES[(i + j) % 4], _MODES[(4 * i + j) % len(_MODES)]):
          harness.OPTIMIZERS[(i + j) // 2 % 2] for j, k in enumerate(_STAGES)}


def _Grid():
  """Each stack in each mode with one or two numbers of stages; M takes turns."""
  for i, name in enumerate(stacks.STACKS):
    selection = _Selection(name)
    points = {
        (k, _MICRO_BATCHES[(i + j + n) % 4], mode): []
        for j, k in enumerate(_STAGES) for n, mode in enumerate(_MODES)
        if (i + j + n) % 3 == 0
    }
    points.update({point: [o] for point, o in selection.items()})
    for (k, m, mode), optimizers in points.items():
      yield pytest.param(
          name, k, m, mode, optimizers,
          id='-'.join([name, f'K{k}', f'M{m}', *mode] + optimizers),
          marks=[] if optimizers else [pytest.mark.slow])


def _Expected(devices, name, m):
  stack = stacks.STACKS[name]
  m = m if stack.by_micro_batch else 1
  if (name, m) not in _EXPECTED:
    _EXPECTED[name, m] = harness.Sequential(devices, stack, m)
  return _EXPECTED[name, m]


@pytest.mark.parametrize('name,k,m,mode,optimizers', list(_Grid()))
def testPipelineEqualsSequence(devices, name, k, m, mode, optimizers):
  stack = stacks.STACKS[name]
  schedule, recompute = mode
  ours = harness.Pipelined(devices, stack, k, m, recompute, optimizers,
                           rewrite='adam' in optimizers, schedule=schedule)
  harness.AssertSame(ours, _Expected(devices, name, m), stack)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
