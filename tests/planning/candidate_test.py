"""Plans of a choice, against arithmetic."""

import pytest

from lingvo_gpipe import schedule
from lingvo_gpipe.planning import candidate
from tests.planning.layer_costs import Layer


def _Devices(k, memory=1e9, flops=1., bandwidth=1e18):
  return candidate.Devices([memory] * k, [flops] * k, bandwidth)


def _Make(layers, *choice, devices=None, **kwargs):
  planner = candidate.Planner(
      lambda m: layers, 16, 0., devices or _Devices(choice[0]), **kwargs)
  return planner.Make(candidate.Choice(*choice))


@pytest.mark.parametrize('mode,times', [
    ('never', 0), ('always', 1), ('selective', 0.25)])
def testTheStepIsTheSchedules(mode, times):
  layers = [Layer(product_flops=0.75) for _ in range(8)]
  plan = _Make(layers, 4, 4, mode, 'gpipe')
  work = schedule.FillDrain(4, 4, forward=2, backward=4, recompute=times)
  assert plan.step_seconds == schedule.StepTime(work)
  assert plan.examples_per_second == 16 / plan.step_seconds
  assert plan.bubble == pytest.approx(schedule.BubbleFraction(work))
  assert plan.boundaries == [2, 4, 6] and plan.imbalance == pytest.approx(0)
  assert plan.stages[0].seconds == 6 + 2 * times


def testExceptLast():
  layers = [Layer(), Layer()]
  work = schedule.FillDrain(2, 4, recompute='except_last')
  assert _Make(layers, 2, 4, 'except_last', 'gpipe').step_seconds == schedule.StepTime(work)


def testTheLastStageNeverRecomputesIn1F1B():
  work = schedule.OneForwardOneBackward(2, 4, recompute=[1, 0], in_flight=2)
  plan = _Make([Layer(), Layer()], 2, 4, 'always', '1f1b', in_flight=2)
  assert plan.step_seconds == schedule.StepTime(work)
  assert plan.stages[1].recompute_seconds == 0


def testTransfers():
  layers = [Layer(), Layer(input_bytes=30)]
  plan = _Make(layers, 2, 1, 'never', 'gpipe', devices=_Devices(2, bandwidth=10.))
  assert plan.step_seconds == 6 + 2 * 3


def testAFasterDeviceGetsMore():
  devices = candidate.Devices([1e9] * 2, [1., 2.], 1e18)
  plan = _Make([Layer()] * 6, 2, 4, 'never', 'gpipe', devices=devices)
  assert plan.boundaries == [2]
  assert [s.seconds for s in plan.stages] == [6, 6]


def testMeasuredTimesCount():
  layers = [Layer(forward_seconds=0.5, backward_seconds=1.)] * 2
  plan = _Make(layers, 2, 1, 'never', 'gpipe', devices=_Devices(2, flops=1e-9))
  assert plan.step_seconds == 3


def testCutWhereItFits():
  # By time the first two would be together.
  layers = [Layer(param_bytes=20, forward_flops=1), Layer(param_bytes=20, forward_flops=1),
            Layer(forward_flops=2, param_bytes=0)]
  free = _Make(layers, 2, 1, 'never', 'gpipe')
  assert free.boundaries == [2] and free.fits
  tight = _Make(layers, 2, 1, 'never', 'gpipe', devices=_Devices(2, memory=50))
  assert tight.boundaries == [1] and tight.fits


def testWhereNothingFits():
  layers = [Layer(param_bytes=20)] * 4
  plan = _Make(layers, 2, 1, 'never', 'gpipe', devices=_Devices(2, memory=50))
  assert not plan.fits and plan.boundaries == [2]
  assert plan.no_fit.needed == [80, 80]


def testBoundStaysBelow():
  layers = [Layer(forward_flops=f) for f in (1, 5, 2, 2)]
  planner = candidate.Planner(lambda m: layers, 16, 0., _Devices(2))
  for mode in ('always', 'never'):
    choice = candidate.Choice(2, 4, mode, 'gpipe')
    assert 0 < planner.LeastSeconds(choice) <= planner.Make(choice).step_seconds
