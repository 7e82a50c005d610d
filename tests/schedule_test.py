"""The clocks, against closed forms and against what every schedule keeps to."""

import collections
import sys

import hypothesis
from hypothesis import strategies as st
import pytest

from lingvo_gpipe import schedule


@pytest.mark.parametrize('k,m', [(1, 1), (2, 8), (4, 4), (8, 1)])
def testBubbleIsThePapers(k, m):
  work = schedule.FillDrain(k, m, recompute='never')
  assert schedule.BubbleFraction(work) == pytest.approx((k - 1) / (m + k - 1))
  assert schedule.StepTime(work) == (m + k - 1) * 3


def testRecomputationHidesInTheBubble():
  # 7 clocks forward; the last stage's 4 times 1 + 2; then the gradient of the
  # last micro-batch passes the other 3 stages, which have recomputed already.
  assert schedule.StepTime(schedule.FillDrain(4, 4)) == 7 + 4 * 3 + 3 * 2


def testTheLastMicroBatchIsSpared():
  k, m = 4, 4
  always = schedule.StepTime(schedule.FillDrain(k, m))
  work = schedule.FillDrain(k, m, recompute='except_last')
  assert schedule.StepTime(work) == always - 1
  assert {w.micro_batch for w in work if w.kind == 'recompute'} == {0, 1, 2}


def testSelective():
  times = [
      schedule.StepTime(schedule.FillDrain(1, 4, recompute=share))
      for share in (0, 0.25, 1, [0.5])
  ]
  assert times == [12, 13, 16, 14]


@pytest.mark.parametrize('d,v,m', [(2, 2, 4), (4, 2, 8), (2, 4, 2), (4, 3, 4)])
def testInterleavedStagesShrinkTheBubble(d, v, m):
  work = schedule.FillDrain(d * v, m, recompute='never', num_devices=d)
  assert schedule.BubbleFraction(work) == pytest.approx((d - 1) / (v * m + d - 1))


def testTheSlowestStageSetsThePace():
  forward, backward = [1, 3, 1], [2, 5, 2]
  work = schedule.FillDrain(3, 100, forward, backward, recompute='never')
  assert schedule.StepTime(work) == 100 * 8 + (1 + 1) + (2 + 2)


def testTransfers():
  # There and back, behind one another only where they are longer than the work.
  assert schedule.StepTime(
      schedule.FillDrain(2, 1, recompute='never', transfer=10)) == 6 + 20
  assert schedule.StepTime(
      schedule.FillDrain(2, 3, recompute='never', transfer=0.5)) == 12 + 1
  assert schedule.StepTime(
      schedule.FillDrain(2, 3, recompute='never', transfer=[10])) == 1 + 30 + 1 + 2 + 30 + 2


@pytest.mark.parametrize('k,m', [(1, 3), (2, 8), (4, 8)])
def testOneForwardOneBackwardTakesAsLongInLessMemory(k, m):
  work = schedule.OneForwardOneBackward(k, m)
  assert schedule.StepTime(work) == (m + k - 1) * 3
  assert max(schedule.MostInFlight(work)) <= k + 1
  assert set(schedule.MostInFlight(schedule.FillDrain(k, m))) == {m}


def testInFlightBound():
  one = schedule.OneForwardOneBackward(2, 4, in_flight=1)
  assert schedule.StepTime(one) == 4 * 6
  assert schedule.MostInFlight(one) == [1, 1]
  assert schedule.MostInFlight(schedule.OneForwardOneBackward(2, 8, in_flight=8))[0] > 2


def testTheDocstringsPicture():
  rows = {
      2: '..F0B0B0F1B1B1F2B2B2F3B3B3',
      1: '.F0F1F2F3B0B0.B1B1.B2B2.B3B3',
      0: 'F0F1F2F3...B0B0.B1B1.B2B2.B3B3',
  }
  work = schedule.OneForwardOneBackward(3, 4)
  for stage, row in rows.items():
    cells = collections.defaultdict(lambda: '.')
    for w in work:
      for clock in range(int(w.start), int(w.end)):
        if w.stage == stage:
          cells[clock] = w.kind[0].upper() + str(w.micro_batch)
    assert ''.join(cells[i] for i in range(max(cells) + 1)) == row


_DURATIONS = st.integers(0, 3) | st.floats(0.1, 3)


@hypothesis.given(st.data())
def testEverySchedule(data):
  k = data.draw(st.integers(1, 5))
  m = data.draw(st.integers(1, 5))
  lists = lambda n: data.draw(st.lists(_DURATIONS, min_size=n, max_size=n))
  forward, backward, transfer = lists(k), lists(k), lists(k - 1)
  recompute = data.draw(st.sampled_from(schedule.RECOMPUTE_MODES + (0.5,)))
  devices = data.draw(st.none() | st.integers(1, k))
  in_flight = data.draw(st.none() | st.integers(1, m))
  make = data.draw(st.sampled_from([schedule.FillDrain, schedule.OneForwardOneBackward]))
  fill_drain = make is schedule.FillDrain
  cores = data.draw(st.none() | st.integers(1, 4))
  work = make(k, m, forward, backward, recompute, transfer, devices, cores=cores,
              **({} if fill_drain else dict(in_flight=in_flight)))
  at = {(w.kind, w.stage, w.micro_batch): w for w in work}
  recomputed = {t for t in range(m) if recompute != 'never' and
                not (recompute == 'except_last' and t == m - 1)}
  share = 0.5 if recompute == 0.5 else 1
  assert len(at) == len(work) == 2 * k * m + len(recomputed) * sum(
      f * share > 0 for f in forward)
  for device in range(devices or k):
    mine = sorted(w[3:5] for w in work if w.device == device)
    assert all(a[1] <= b[0] + 1e-9 for a, b in zip(mine, mine[1:]))
  for stage in range(k):
    for kind in ('forward', 'backward'):
      backwards = fill_drain and kind == 'backward'
      order = [w.micro_batch for w in work if (w.stage, w.kind) == (stage, kind)]
      assert order == sorted(range(m), reverse=backwards)
    for t in range(m):
      assert at['forward', stage, t].end <= at['backward', stage, t].start
      if ('recompute', stage, t) in at:
        assert at['recompute', stage, t].end <= at['backward', stage, t].start
      if stage:
        delay = 0 if devices == 1 else transfer[stage - 1]
        assert at['forward', stage, t].start >= at['forward', stage - 1, t].end + delay - 1e-9
        assert at['backward', stage - 1, t].start >= at['backward', stage, t].end + delay - 1e-9
  if not fill_drain:
    assert max(schedule.MostInFlight(work)) <= (in_flight or k + 1)


def testSharedCores():
  # A stage alone takes 1.8 cores for its backward pass, of 2; two share them.
  alone = 2 / 1.8

  def StepTime(stages, cores):
    return schedule.StepTime(
        schedule.FillDrain(stages, 4, recompute='never', cores=cores))

  assert StepTime(1, cores=2) == pytest.approx(4 * 1 + 4 * alone)
  assert StepTime(1, cores=1) == pytest.approx(12)
  # Forward, one core each: 5. Backward: alone, three at once, alone.
  assert StepTime(2, cores=2) == pytest.approx(5 + alone + 3 * 2 + alone)
  # With more cores than are wanted, nothing waits for one.
  assert StepTime(2, cores=4) == pytest.approx(5 + 5 * alone)


def testDurationsOfTheWrongLength():
  with pytest.raises(ValueError, match='3 durations are given where 2'):
    schedule.FillDrain(2, 1, forward=[1, 1, 1])


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
