"""Tests for the list of registered models."""
import io
import sys

from lingvo import model_registry
from lingvo.core import base_model
from lingvo.core import base_model_params
from lingvo.core import hyperparams
import pytest

from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.launcher import model_list
from lingvo_gpipe.launcher import models
from tests.testdata import my_models


@model_registry.RegisterSingleTaskModel
class ListedBig(my_models.Small):
  """Two hundred billion parameters.

  And more.
  """

  def Task(self):
    p = super().Task()
    p.pipeline.layers[1].output_dim = p.pipeline.layers[2].input_dim = 6 * 10**9
    p.pipeline.Set(num_stages=3, num_micro_batches=16)
    return p


@model_registry.RegisterSingleTaskModel
class ListedUnpipelined(base_model_params.SingleTaskModelParams):

  def Task(self):
    return my_models.Unpipelined().Task()


@model_registry.RegisterSingleTaskModel
class ListedWithoutTask(my_models.Small):

  def Task(self):
    raise ValueError('There is no file\n  vocabulary.txt.')


@model_registry.RegisterSingleTaskModel
class ListedWithoutData(my_models.Small):

  def Train(self):
    raise LookupError('There is no folder.')


@model_registry.RegisterSingleTaskModel
class ListedWithABadLayer(my_models.Small):

  def Task(self):
    p = super().Task()
    p.pipeline.layers[2].activation = 'NOPE'
    return p


@model_registry.RegisterMultiTaskModel
class ListedOfTwoTasks(base_model_params.MultiTaskModelParams):

  def Train(self):
    return self._Both(my_models.Points.Params)

  def Model(self):
    return base_model.MultiTaskModel.Params().Set(task_params=self._Both(my_models.Small().Task))

  def _Both(self, make):
    p = hyperparams.Params()
    p.Define('a', make(), '')
    p.Define('b', make(), '')
    return p


@pytest.fixture(name='listed', scope='module')
def _Listed():
  """({model: the rest of its row}, the lines of errors)."""
  found = {name: cls for name, cls in lingvo_compat.RegisteredModels().items() if name.startswith('test.Listed')}

  def ImportAll(report, unused_name):
    report('model_registry.broken', ImportError('No module named "pandas".'))
    return found

  out, errors = io.StringIO(), io.StringIO()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(models, 'ImportAll', ImportAll)
    model_list.Print(stream=out, errors=errors)
  lines = out.getvalue().splitlines()
  assert lines[0].split() == ['model', 'parameters', 'data', 'stages', 'micro-batches']
  rows = dict(line.split(None, 1) for line in lines[1:])
  assert list(rows) == sorted(found)
  return {name.partition('Listed')[2]: row.split() for name, row in rows.items()}, errors.getvalue().splitlines()


def testParametersDataAndPipeline(listed):
  rows, _ = listed
  n = 6 * 10**9
  assert rows['Big'] == [
      f'{4 * 16 + 16 + 16 * n + n + n * 16 + 16 + 16 * 2 + 2:,}', 'Points', '3', '16', 'Two', 'hundred', 'billion',
      'parameters.']
  assert rows['Unpipelined'] == ['10', '-', '-', '-']
  assert rows['OfTwoTasks'] == ['1,316', 'Points,', 'Points', '1,', '1', '4,', '4']


def testWhatCannotBeToldIsADashAndAnError(listed):
  rows, errors = listed
  assert rows['WithoutTask'] == ['-', 'Points', '-', '-']
  assert rows['WithoutData'] == ['658', '-', '1', '4']
  assert rows['WithABadLayer'] == ['-', 'Points', '1', '4']
  broken, bad_layer, no_data, no_task = errors
  assert broken == 'model_registry.broken can\'t be imported: ImportError: No module named "pandas".'
  assert bad_layer.startswith("test.ListedWithABadLayer: the number of its parameters can't be told: ")
  assert no_data == "test.ListedWithoutData: its data can't be told: LookupError: There is no folder."
  assert no_task == "test.ListedWithoutTask: its params can't be told: ValueError: There is no file vocabulary.txt."


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
