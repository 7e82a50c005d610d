"""Tests for finding registered models."""
import sys
import textwrap

import pytest

from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.launcher import models
from lingvo_gpipe.launcher import user_errors

_MODULE = textwrap.dedent('''
    """Models."""
    from lingvo import model_registry
    from lingvo.core import base_model_params
    print('loaded')


    @model_registry.RegisterSingleTaskModel
    class Trains(base_model_params.SingleTaskModelParams):
      """Says what it is.

      And more.
      """

      def Train(self):
        return None


    class NotRegistered(base_model_params.SingleTaskModelParams):
      pass


    @model_registry.RegisterSingleTaskModel
    class Lists(base_model_params.SingleTaskModelParams):

      def GetAllDatasetParams(self):
        return {'Holdout': None}
    ''')


@pytest.fixture(name='module', scope='module')
def _Module(tmp_path_factory):
  """The name of a module with models, which Python finds."""
  folder = tmp_path_factory.mktemp('models')
  (folder / 'models_for_models_test_.py').write_text(_MODULE)
  (folder / 'broken_module_.py').write_text('import not_there_at_all\n')
  sys.path.insert(0, str(folder))
  yield 'models_for_models_test_'
  sys.path.remove(str(folder))


def testImportsQuietly(module, capfd):
  models.Import(f'{module}.Trains')
  assert f'{module}.Trains' in lingvo_compat.RegisteredModels()
  assert capfd.readouterr() == ('loaded\n', '')


@pytest.mark.parametrize('name, message', [
    ('{}.trian', 'Did you mean {}.Trains'),
    ('Lists', 'Did you mean {}.Lists'),
    ('model_registry.image.resnet.ResNetDigit', 'Did you mean model_registry.image.resnet.ResNetDigits'),
    ('qqq.zzz', 'named by its module'),
    ('{}.NotRegistered', '{}.NotRegistered is there, but not registered as a model. Put @model_registry.Reg'),
    ('broken_module_.Model', "can't be imported: ModuleNotFoundError: No module named 'not_there_at_all'"),
])
def testUnknown(module, name, message):
  models.Import(f'{module}.Trains')
  with pytest.raises(user_errors.UserError) as caught:
    models.Import(name.format(module))
  assert message.format(module) in str(caught.value)


def testImportAll(module):
  failed = []
  found = models.ImportAll(lambda *args: failed.append(args), f'{module}.Nope')
  assert not failed
  assert f'{module}.Trains' in found and 'model_registry.image.resnet.ResNetDigits' in found


def testWhatCannotBeImportedDoesNotHideTheOthers(module):
  failed = {}
  found = models.ImportAll(failed.__setitem__, 'broken_module_.Nope')
  assert list(failed) == ['broken_module_'] and 'not_there_at_all' in str(failed['broken_module_'])
  assert 'model_registry.image.resnet.ResNetDigits' in found
  assert models.ImportAll(failed.__setitem__) == found


def testHasDataset(module):
  models.Import(f'{module}.Trains')
  assert models.HasDataset(f'{module}.Trains', 'Train')
  assert not models.HasDataset(f'{module}.Trains', 'Test')
  assert models.HasDataset(f'{module}.Lists', 'Holdout')
  assert not models.HasDataset(f'{module}.Lists', 'Train')
