"""The fill-drain clock."""

import sys

import pytest

from lingvo_gpipe import schedule


@pytest.mark.parametrize('k,m', [(1, 1), (2, 8), (4, 4), (8, 1)])
def testBubbleIsThePapers(k, m):
  work = schedule.FillDrain(k, m, recompute=0)
  assert schedule.BubbleFraction(work) == pytest.approx((k - 1) / (m + k - 1))
  assert max(w.end for w in work) == (m + k - 1) * 3


def testRecomputationHidesInTheBubble():
  work = schedule.FillDrain(4, 4)
  # 7 clocks forward; the last stage's 4 times 1 + 2; then the gradient of the
  # last micro-batch passes the other 3 stages, which have recomputed already.
  assert max(w.end for w in work) == 7 + 4 * 3 + 3 * 2


@pytest.mark.parametrize('recompute', [0., 1.])
def testWorkIsInOrder(recompute):
  k, m = 3, 4
  work = schedule.FillDrain(k, m, recompute=recompute)
  at = {(w.stage, w.micro_batch, w.kind): w for w in work}
  assert len(at) == len(work) == k * m * (3 if recompute else 2)
  for stage in range(k):
    mine = [w for w in work if w.stage == stage]
    assert all(a.end <= b.start for a, b in zip(mine, mine[1:]))
    assert [w.micro_batch for w in mine if w.kind == 'backward'] == [3, 2, 1, 0]
  for stage in range(1, k):
    for t in range(m):
      assert at[stage - 1, t, 'forward'].end <= at[stage, t, 'forward'].start
      assert at[stage, t, 'backward'].end <= at[stage - 1, t, 'backward'].start


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
