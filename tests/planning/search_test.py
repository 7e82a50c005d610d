"""The best choice."""

from lingvo_gpipe.planning import candidate
from lingvo_gpipe.planning import search
from tests.planning.layer_costs import Layer

_BATCH = 8


def _Planner(memory, **values):
  """Eight layers whose costs grow with the micro-batch."""

  def CostsAt(m):
    size = _BATCH // m
    scaled = {name: size * value for name, value in values.items()}
    return [Layer(forward_flops=size, backward_flops=2 * size, param_bytes=10, **scaled)] * 8

  devices = candidate.Devices([memory] * 4, [1.] * 4, 1e18)
  return candidate.Planner(CostsAt, _BATCH, 0., devices)


def _Best(planner):
  plan = search.Best(
      planner, range(1, 5), search.Divisors(_BATCH), ['always', 'never'], ['gpipe'])
  return plan.choice, plan.fits


def testDivisors():
  assert search.Divisors(12) == [1, 2, 3, 4, 6, 12]


def testWithPlentyOfMemoryNothingIsRecomputed():
  choice = candidate.Choice(4, 8, 'never', 'gpipe')
  assert _Best(_Planner(1e9, kept_bytes=100, input_bytes=1)) == (choice, True)


def testWithLittleMemoryItRecomputes():
  # Weights and gradients take 40 a stage, one micro-batch of two layers 8 * 2.
  choice, fits = _Best(_Planner(100, kept_bytes=8, peak_bytes=8, input_bytes=1))
  assert (choice, fits) == (candidate.Choice(4, 8, 'always', 'gpipe'), True)


def testWithTooLittleMemoryTheSmallestIsShown():
  choice, fits = _Best(_Planner(30, kept_bytes=8, peak_bytes=8, input_bytes=1))
  assert not fits
  assert (choice.num_stages, choice.recompute) == (4, 'always')


def testItIsTheBestOfAll():
  planner = _Planner(150, kept_bytes=9, peak_bytes=10, input_bytes=1)
  best = search.Best(planner, range(1, 5), search.Divisors(_BATCH), ['always', 'never'], ['gpipe', '1f1b'])
  plans = [
      planner.Make(candidate.Choice(k, m, mode, s)) for k in range(1, 5)
      for m in (1, 2, 4, 8) for mode in ('always', 'never') for s in ('gpipe', '1f1b')
  ]
  shortest = min(p.step_seconds for p in plans if p.fits)
  assert best.fits and best.step_seconds <= 1.02 * shortest
