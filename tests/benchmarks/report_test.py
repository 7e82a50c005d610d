"""The benchmarks' arithmetic, table and JSON, without any measuring."""

import json
import sys

import pytest

from benchmarks import cases
from benchmarks import report


def _Measurement(case, seconds, loss=1.):
  return report.Measurement(case, 0.5, loss, [[seconds] * 2, [2 * seconds] * 2], 100.)


@pytest.mark.parametrize('stages,micro_batches,recompute,limit', [
    (1, 1, 'never', 0.26),
    (1, 8, 'always', 0.26 * 4 / 3),
    (2, 8, 'never', 0.14625),
    (2, 8, 'always', 0.195),
    (2, 1, 'never', 0.26),
])
def testLimit(stages, micro_batches, recompute, limit):
  assert report.Limit(0.26, stages, micro_batches, recompute) == pytest.approx(limit)


def testEntryHasExactlyTheKeys():
  none, always = cases.Group('residual', 2, 8)[:2]
  entry = report.Entry(_Measurement(always, 0.15), _Measurement(none, 0.26))
  assert json.loads(json.dumps(entry)) == entry
  assert tuple(entry) == (
      'workload', 'impl', 'schedule', 'recompute', 'stages', 'micro_batches', 'step_s', 'examples_per_s',
      'share_of_limit', 'build_s', 'peak_mb')
  assert entry['share_of_limit'] == pytest.approx(0.195 / 0.15)
  assert entry['examples_per_s'] == pytest.approx(64 / entry['step_s'])


def testRatiosAreTakenWithinARound():
  case = cases.Group('residual', 2, 8)[0]
  slow_then_fast = [[4.], [1.], [1.]]
  base = report.Measurement(case, 0, 0, slow_then_fast)
  other = report.Measurement(case, 0, 0, [[t / 2] for t, in slow_then_fast])
  assert report.Ratio(base, other) == 2


def testWrongLosses():
  none, always, never, *_ = cases.Group('residual', 2, 8)
  assert not report.WrongLosses([_Measurement(none, 1, 1.), _Measurement(always, 1, 1.0009)])
  assert report.WrongLosses([_Measurement(c, 1, l) for c, l in [(none, 1.), (always, 1.), (never, 1.002)]]) == {
      never: 1.002}
  assert report.WrongLosses([_Measurement(none, 1, 1.), _Measurement(always, 1, float('nan'))])
  # Batch normalisation sees the micro-batches.
  none, always, never, *_ = cases.Group('resnet50', 2, 8)
  assert not report.WrongLosses([_Measurement(none, 1, 1.), _Measurement(always, 1, 2.), _Measurement(never, 1, 2.)])


def testPyTorchsOneFOneBNeedsAMicroBatchAStage():
  assert ('torch_pipelining', '1f1b') not in [c[1:3] for c in cases.Group('residual', 2, 1)]
  assert ('torch_pipelining', '1f1b') in [c[1:3] for c in cases.Group('residual', 2, 4)]
  assert ('gpipe', '1f1b') in [c[1:3] for c in cases.Group('residual', 2, 1)]


def testOnlyNewEntries():
  none, always = cases.Group('residual', 2, 8)[:2]
  first = report.NewEntries([_Measurement(none, 0.26)], [])
  assert [e['impl'] for e in first] == ['none']
  assert [e['impl'] for e in report.NewEntries([_Measurement(none, 9.), _Measurement(always, 0.2)], first)] == ['gpipe']


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
