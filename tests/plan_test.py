"""The plan command: what people see of it."""

import json
import os
import re
import sys
import time

from absl.testing import flagsaver
import pytest

from lingvo_gpipe import layer_graph
from lingvo_gpipe import plan
from lingvo_gpipe.launcher import models
from lingvo_gpipe.layers import transformer

_DIGITS = 'model_registry.image.resnet.ResNetDigits'
_SMALL = 'my_models.Planned'
_LM = 'model_registry.lm.transformer.'
_TESTDATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'testdata')


@pytest.fixture(name='run')
def _Run(capsys, monkeypatch):
  """Runs the command; returns (exit code, standard output, standard error)."""
  monkeypatch.syspath_prepend(_TESTDATA)

  def Run(model, **values):
    models.Import(model)
    with flagsaver.flagsaver(model=model, **values):
      code = plan.main(['plan'])
    return (code,) + capsys.readouterr()

  return Run


def testTable(run):
  code, out, _ = run(
      _SMALL, device_memory='1GB', num_stages=2, num_micro_batches=4, recompute='always')
  assert code == 0
  lines = out.splitlines()
  assert lines[0] == f'{_SMALL}: 4 layers, 658 parameters, 8 examples a step'
  assert '2 stages, 4 micro-batches, schedule=gpipe, recompute=always' in lines[1]
  titles = next(line for line in lines if line.startswith('stage')).split()
  assert titles == ('stage layers parameters weights gradients slots always except_last selective never in all of '
                    'time').split()
  assert re.findall(r'^ +\d  \d: \w+ \.\.\. \w+ +(\d+) ', out, re.M) == ['352', '306']
  assert re.findall(r'^gpipe +(\w+) .*yes$', out, re.M) == ['always', 'except_last', 'selective', 'never']
  flags = r'--num_stages=2 --num_micro_batches=4 --recompute=always --schedule=gpipe --partition=2$'
  assert re.search(r'It fits\. To train so: ' + flags, out, re.M)


def testJson(run):
  code, out, _ = run(_SMALL, device_memory='20kB', partition='2', num_micro_batches=4, json=True)
  data = json.loads(out)
  assert code == 0 and data['fits']
  first, second = data['stages']
  assert first['layers'] == ['fc0', 'fc1'] and second['layers'] == ['fc2', 'fc3']
  assert data['parameters'] == 658 and (first['parameters'], second['parameters']) == (352, 306)
  assert first['weights'] == 4 * 352 == first['gradients']
  assert data['slots_per_parameter'] == 2 and first['slots'] == 8 * 352  # Adam.
  assert first['bytes'] == pytest.approx(16 * 352 + first['activations'][data['recompute']])
  assert first['activations']['always'] < first['activations']['selective'] < first['activations']['never']
  seconds = {m['recompute']: m['step_seconds'] for m in data['modes'] if m['schedule'] == 'gpipe'}
  # Transfers take most of the time here, so the two between may come in either order.
  between = seconds['selective'], seconds['except_last']
  assert seconds['never'] <= min(between) and max(between) < seconds['always']


def testResNet(run):
  code, out, _ = run(_DIGITS, device_memory='1GB', num_stages=2, num_micro_batches=4, json=True)
  data = json.loads(out)
  assert code == 0 and data['parameters'] == 687274 and data['slots_per_parameter'] == 1
  assert {m['schedule'] for m in data['modes']} == {'gpipe', '1f1b'}


def testWhatDoesNotFit(run):
  code, out, _ = run(_SMALL, device_memory='5kB', num_stages=2, num_micro_batches=4)
  assert code == 1
  assert re.search(r'It does not fit: stage 0 needs [\d.]+ kB, and its device has 5 kB\.', out)
  least = float(re.search(r'some cut would fit is ([\d.]+) kB', out).group(1))
  for share, expected in ((1.01, 0), (0.99, 1)):
    code, _, _ = run(_SMALL, device_memory=f'{share * least}kB', num_stages=2, num_micro_batches=4)
    assert code == expected


def testTheBestIsFound(run):
  flags = dict(device_memory='1GB', device_flops='1G', num_devices=4, json=True)
  code, out, _ = run(_SMALL, **flags)
  data = json.loads(out)
  assert code == 0 and data['recompute'] == 'never' and data['num_stages'] > 1
  for more in (dict(num_stages=1), dict(num_micro_batches=1), dict(recompute='always')):
    _, out, _ = run(_SMALL, **flags, **more)
    assert json.loads(out)['step_seconds'] >= data['step_seconds'] / 1.02


def testAScheduleThatOnlyTheTasksAuthorCanTell(run):
  """The task isn't a PipelinedTask, but may call FPropLoss itself."""
  _, out, _ = run(_SMALL, device_memory='1GB', num_stages=2, num_micro_batches=4)
  assert '1f1b' not in out
  code, out, _ = run(_SMALL, device_memory='1GB', num_stages=2, num_micro_batches=4, schedule='1f1b')
  assert code == 0 and re.search('^1f1b +never ', out, re.M) and re.search('^gpipe +never ', out, re.M)


@pytest.mark.parametrize('schedule, flags', [('1f1b', '--schedule=1f1b --in_flight=2 '), ('gpipe', '--schedule=gpipe ')])
def testTheAdviceHasWhatWasPlannedWith(run, schedule, flags):
  _, out, _ = run(_SMALL, device_memory='1GB', num_stages=3, num_micro_batches=4, schedule=schedule, in_flight=2)
  assert flags + '--partition=' in out


def testMeasuredCosts(run):
  code, out, _ = run(_SMALL, device_memory='1GB', num_stages=2, num_micro_batches=4, cost='time', json=True)
  data = json.loads(out)
  assert code == 0 and data['cost'] == 'time'
  assert 0 < data['step_seconds'] < 60


def testUnlikeDevices(run):
  _, out, _ = run(
      _SMALL, device_memory='1GB,2GB', device_flops='1T,3T', bandwidth='1TB', num_stages=2, num_micro_batches=4,
      json=True)
  first, second = json.loads(out)['stages']
  assert first['layers'] == ['fc0'] and len(second['layers']) == 3
  assert (first['device_memory'], second['device_memory']) == (1e9, 2e9)


def testPartitionOfOnesOwn(run):
  _, out, _ = run(_SMALL, device_memory='1GB', partition='1', num_micro_batches=4, json=True)
  data = json.loads(out)
  assert data['partition'] == [1] and data['num_stages'] == 2 and data['imbalance'] > 0.2


@pytest.mark.parametrize('name, stages, layers, parameters', [
    ('TransformerL103', 8, 105, 5.3e9), ('TransformerL1663', 128, 1665, 83.9e9)])
def testThePapersLargestTakeSeconds(run, monkeypatch, name, stages, layers, parameters):
  traced, made = [], []
  trace, default = layer_graph.Trace, transformer.TransformerLayer.Params
  monkeypatch.setattr(layer_graph, 'Trace', lambda p, *args: traced.append(p.name) or trace(p, *args))
  monkeypatch.setattr(transformer.TransformerLayer, 'Params', lambda: made.append(1) or default())
  start = time.process_time()
  code, out, _ = run(_LM + name, device_memory='16GB', num_stages=stages, num_micro_batches=32, json=True)
  assert time.process_time() - start < 15
  data = json.loads(out)
  assert code == 0 and data['layers'] == layers and data['parameters'] == pytest.approx(parameters, rel=0.01)
  # One layer of each kind is made and traced, whatever their number.
  assert traced == ['embedding', 'layer_000', 'softmax'] and len(made) == 1


@pytest.mark.parametrize('model, flags, message', [
    (_SMALL, {}, 'There is no --device_memory'),
    (_SMALL, dict(device_memory='much'), "--device_memory: 'much' is not an amount"),
    (_SMALL, dict(device_memory='1GB,1GB', num_stages=3), '--device_memory lists 2 devices, and there are 3'),
    (_SMALL, dict(device_memory='1GB', num_stages=3, num_devices=2), '--num_stages=3 needs as many devices'),
    (_SMALL, dict(device_memory='1GB', num_stages=5, num_micro_batches=4), 'num_stages=5 is more than the 4 layers'),
    (_SMALL, dict(device_memory='1GB', num_stages=2, num_micro_batches=3), 'num_micro_batches=3'),
    (_SMALL, dict(device_memory='1GB', num_stages=2, partition='1,2'), 'boundaries 1,2 make 3 stages, not'),
    (_SMALL, dict(device_memory='1GB', num_devices=2, partition='1,2'), 'there are 2 devices to choose from'),
    (_SMALL, dict(device_memory='1GB', model_params_override='task.pipline.name:x'), '--model_params_override: there is'),
    ('my_models.Small', dict(device_memory='1GB'), 'input_shapes of the pipeline pipeline is not set'),
    ('my_models.Unpipelined', dict(device_memory='1GB'), 'has no PipeliningLayer'),
])
def testRefusals(run, model, flags, message):
  code, out, err = run(model, **flags)
  assert code == 2 and not out
  assert err.startswith('error: ') and message in ' '.join(err.split())


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
