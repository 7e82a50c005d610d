"""A pipeline gives what the same layers in sequence on one device give."""

import itertools
import sys

import pytest

from lingvo_gpipe import stacked_recurrent
from tests.transparency import harness
from tests.transparency import stacks

_STAGES = (1, 2, 3, 4)
_MICRO_BATCHES = (1, 2, 4, 8)
_MODES = stacked_recurrent.RECOMPUTE_MODES
# Results in sequence, by (stack, number of micro-batches).
_EXPECTED = {}


def _Selection(name):
  """A few points of the grid, that hold each K, M, mode and optimizer.

  Which of them meet differs from stack to stack.

  Args:
    name: The name of a stack.

  Returns:
    {(K, M, recompute): the optimizer to train with}.
  """
  i = list(stacks.STACKS).index(name)
  return {(k, _MICRO_BATCHES[(i + j) % 4], _MODES[(i // 4 + j) % len(_MODES)]):
          harness.OPTIMIZERS[(i + j) // 2 % 2] for j, k in enumerate(_STAGES)}


def _Grid():
  for name in stacks.STACKS:
    selection = _Selection(name)
    for point in itertools.product(_STAGES, _MICRO_BATCHES, _MODES):
      optimizers = [selection[point]] if point in selection else []
      k, m, mode = point
      yield pytest.param(
          name, *point, optimizers, id='-'.join(
              [name, f'K{k}', f'M{m}', mode] + optimizers),
          marks=[] if optimizers else [pytest.mark.slow])


def _Expected(devices, name, m):
  stack = stacks.STACKS[name]
  m = m if stack.by_micro_batch else 1
  if (name, m) not in _EXPECTED:
    _EXPECTED[name, m] = harness.Sequential(devices, stack, m)
  return _EXPECTED[name, m]


@pytest.mark.parametrize('name,k,m,recompute,optimizers', list(_Grid()))
def testPipelineEqualsSequence(devices, name, k, m, recompute, optimizers):
  stack = stacks.STACKS[name]
  ours = harness.Pipelined(devices, stack, k, m, recompute, optimizers,
                           rewrite='adam' in optimizers)
  harness.AssertSame(ours, _Expected(devices, name, m), stack)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
