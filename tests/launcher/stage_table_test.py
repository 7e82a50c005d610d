"""Tests for the table before training."""
import sys

import lingvo.compat as tf
from lingvo.core import layers
import pytest

import lingvo_gpipe
from lingvo_gpipe.launcher import stage_table

_CPU = '/job:localhost/replica:0/task:0/device:CPU:'
# A product's FLOPs, forward and backward, for 8 examples. ReLU and bias are a few per mille more.
_PRODUCT = 3 * 2 * 8 * 256 * 256


def _Lines(num_layers=4, num_stages=2, outside=False, **kwargs):
  """The table of a pipeline of dense layers for two micro-batches of 8, as lists of columns."""
  dense = [layers.FCLayer.Params().Set(name=f'fc{i}', input_dim=256, output_dim=256) for i in range(num_layers)]
  kwargs = {'input_shapes': [[16, 256]], 'num_micro_batches': 2, **kwargs}
  pipeline = lingvo_gpipe.PipeliningLayer.Params().Set(
      name='pipeline', layers=dense, num_stages=num_stages,
      stage_devices=[f'{_CPU}{i}' for i in range(num_stages)], **kwargs)
  model = pipeline
  if outside:
    model = lingvo_gpipe.FeatureExtractionLayer.Params().Set(
        name='model', sub=[layers.FCLayer.Params().Set(name='more', input_dim=2, output_dim=3), pipeline])
  with tf.Graph().as_default():
    return stage_table.Format(model.Instantiate()).splitlines()


def _Cost(line, unit):
  """(the cost, the share) that a stage's row ends with."""
  number, prefixed, share = line.split()[-3:]
  assert share.endswith('%') and prefixed.endswith(unit)
  return float(number) * {'': 1, 'k': 1e3, 'M': 1e6, 'm': 1e-3, 'u': 1e-6}[prefixed[:-len(unit)]], float(share[:-1])


def testColumns():
  header, first, second, balance, total = _Lines()
  assert header.split() == ['stage', 'device', 'layers', 'parameters', 'cost']
  number = 2 * (256 * 256 + 256)
  assert first.split()[:-3] == ['0', 'CPU:0', '2:', 'fc0', '...', 'fc1', f'{number:,}']
  assert second.split()[:-3] == ['1', 'CPU:1', '2:', 'fc2', '...', 'fc3', f'{number:,}']
  for line in (first, second):
    cost, share = _Cost(line, 'FLOPs')
    assert cost == pytest.approx(2 * _PRODUCT, rel=.02) and share == 50
  assert balance == 'the largest stage costs 0.0% more than if all were equal'
  assert total == f'{2 * number:,} parameters'


def testTheSharesAndTheImbalanceOfAnUnevenCut():
  lines = _Lines(partition=[1])
  assert [_Cost(line, 'FLOPs')[1] for line in lines[1:3]] == [25, 75]
  assert lines[1].split()[2:4] == ['1:', 'fc0']
  # 3/4 in place of 1/2.
  assert lines[3] == 'the largest stage costs 50.0% more than if all were equal; the best cut: 0.0%'


def testWhereTheBestCutIsNotEven():
  *_, balance, _ = _Lines(num_layers=3)
  assert balance == 'the largest stage costs 33.3% more than if all were equal'


def testMeasuredTimes():
  lines = _Lines(cost='time')
  costs = [_Cost(line, 's') for line in lines[1:3]]
  assert all(0 < seconds < 1 for seconds, _ in costs)
  assert sum(share for _, share in costs) == pytest.approx(100, abs=.11)
  assert lines[3].startswith('the largest stage costs ')


@pytest.mark.parametrize('kwargs', [dict(input_shapes=None), dict(num_stages=1)])
def testSharesAloneWhereNoCostIsKnown(kwargs):
  lines = _Lines(**kwargs)
  k = kwargs.get('num_stages', 2)
  assert len(lines) == k + 2  # No line about the balance.
  assert [line.split()[-1] for line in lines[1:-1]] == [f'{100 / k:.1f}%'] * k
  assert not any('FLOPs' in line for line in lines)


def testParametersOutsideOfTheStages():
  assert _Lines(outside=True)[-1] == f'{4 * (256 * 256 + 256) + 9:,} parameters, 9 of them outside of the stages'


def testWithoutAPipeline():
  with tf.Graph().as_default():
    layer = layers.FCLayer.Params().Set(name='fc', input_dim=2, output_dim=3).Instantiate()
    assert stage_table.Format(layer) == '9 parameters, no pipeline'


def testSeveralPipelinesAreNamed():
  names = ['encoder', 'decoder']
  model = lingvo_gpipe.FeatureExtractionLayer.Params().Set(name='model', sub=[
      lingvo_gpipe.PipeliningLayer.Params().Set(
          name=name, layers=[layers.FCLayer.Params().Set(name=f'{name}_fc', input_dim=2, output_dim=2)])
      for name in names])
  with tf.Graph().as_default():
    lines = stage_table.Format(model.Instantiate()).splitlines()
  assert [lines[0], lines[3], lines[-1]] == ['model.encoder:', 'model.decoder:', '12 parameters']


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
