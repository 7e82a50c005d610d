"""Every registered model, found by the registry: it can be built, traced and cut, and takes no memory for that."""

import re
import resource
import sys

from lingvo.core import cluster_factory
import lingvo.compat as tf
import pytest

from lingvo_gpipe import layer_graph
from lingvo_gpipe import layer_kinds
from lingvo_gpipe import lingvo_compat
from lingvo_gpipe import partition
from lingvo_gpipe.launcher import models
from lingvo_gpipe.launcher import parameter_count
from lingvo_gpipe.planning import subject as subject_lib

_NAMES = sorted(
    name for name in models.ImportAll() if name.startswith('model_registry.'))
_GB = 10**9


@pytest.fixture(scope='module', name='shared')
def _Shared():
  """Has layers that several models have in common built once."""
  graphs = layer_kinds.Kinds()
  trace = layer_graph.Trace

  def Trace(params, *given):
    graph = graphs.Get(params, *given)
    return graph or graphs.Add(trace(params, *given), params, *given)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(layer_graph, 'Trace', Trace)
    yield parameter_count.ParameterCount()


def _CheckDocstring(name, count):
  """Checks the number of parameters that the docstring says, to its last digit."""
  text = lingvo_compat.RegisteredModels()[name].__mro__[1].__doc__
  for number, unit in re.findall(r'([\d.]+)([MB]) parameters', text):
    digits = len(number.partition('.')[2])
    assert round(count / {'M': 1e6, 'B': 1e9}[unit], digits) == float(number)


@pytest.mark.parametrize('name', _NAMES)
def testIsBuiltTracedAndCut(shared, name):
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  with tf.Graph().as_default() as graph, cluster_factory.ForTestingWorker(
      mode='sync', job='trainer_client'):
    params = lingvo_compat.ModelRegistry().GetParams(name, 'Train')
    subject = subject_lib.Subject(params, name)
    costs = subject.CostsAt(subject.pipeline.num_micro_batches)
    count = shared.Of(params.task)
    assert not graph.get_operations()
  assert len(costs) == len(subject.layers) == len({p.name for p in subject.layers})
  assert sum(c.num_params for c in costs) == count
  assert all(c.flops > 0 and not c.uncounted for c in costs)
  _CheckDocstring(name, count)
  assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < _GB

  flops = [c.flops for c in costs]
  for k in (2, 8):
    if k > len(flops):
      with pytest.raises(ValueError, match=f'num_stages=8 is more than the {len(flops)} layers'):
        partition.Partition(flops, k)
      continue
    cut = partition.Partition(flops, k)
    assert cut[0][0] == 0 and cut[-1][1] == len(flops) and len(cut) == k
    stages = partition.StageCosts(flops, cut)
    # No cut can do better than by a layer.
    assert max(stages) <= sum(flops) / k + max(flops)


def testAllModelsAreThere():
  modules = {name.rpartition('.')[0].removeprefix('model_registry.') for name in _NAMES}
  assert modules >= {'image.resnet', 'lm.transformer', 'mt.transformer', 'mt.reverse'}


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
