"""Finds registered models: by name, by similar names, or all of them."""
import contextlib
import difflib
import importlib
import io
import pkgutil
import sys

from absl import flags
from lingvo import model_imports
from lingvo.core import base_model_params

from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.launcher import user_errors

FLAGS = flags.FLAGS
_PACKAGE = 'model_registry'


@contextlib.contextmanager
def _ImportsUnannounced():
  """Drops the lines in which Lingvo tells each module that it tries, and nothing else."""
  said = io.StringIO()
  try:
    with contextlib.redirect_stderr(said):
      yield
  finally:
    for line in said.getvalue().splitlines(keepends=True):
      if not line.startswith('model_imports.py: Importing'):
        sys.stderr.write(line)


def Import(name):
  """Imports the module that registers a model.

  Args:
    name: the model's name, the module's path and the class's name: model_registry.image.resnet.ResNetDigits. The
      module may be anywhere that Python finds it.

  Raises:
    UserError: there is no such model, or its module can't be imported.
  """
  module = name.rpartition('.')[0]
  try:
    _ImportModule(name)
  except Exception as e:  # pylint: disable=broad-except
    # Whatever a module of the user's raises as it is imported is for the user.
    raise user_errors.UserError(
        f'{module}, the module of --model={name}, can\'t be imported: {type(e).__name__}: {e} (--debug shows where)'
    ) from e
  if name in lingvo_compat.RegisteredModels():
    return
  if hasattr(sys.modules.get(module), name.rpartition('.')[2]):
    raise user_errors.UserError(
        f'{name} is there, but not registered as a model. Put @model_registry.RegisterSingleTaskModel (from lingvo '
        'import model_registry) before the class.')
  found = sorted(ImportAll())
  similar = _Similar(name, found)
  hint = (f'Did you mean {" or ".join(similar)}?' if similar else
          f'A model of one\'s own is named by its module, which Python must find from here, and its class: '
          f'my_module.MyModel.')
  raise user_errors.UserError(f'There is no model {name}. {hint} --list_models lists the models.')


def HasDataset(name, dataset):
  """Returns whether a registered model defines a dataset.

  Lingvo's base classes define all of Train, Dev and Test, as empty ones, so that calling one tells nothing.

  Args:
    name: the model's name.
    dataset: 'Train', 'Dev', 'Test' or one of the model's own.
  """
  cls = lingvo_compat.RegisteredModels()[name]
  datasets = cls().GetAllDatasetParams()
  if datasets is not None:
    return dataset in datasets
  for base in (base_model_params.SingleTaskModelParams, base_model_params.MultiTaskModelParams):
    if issubclass(cls, base):
      return getattr(cls, dataset, None) is not getattr(base, dataset, None)
  return hasattr(cls, dataset)


def Params(get, *args):
  """Returns a model's params.

  Args:
    get: gives them, with the overrides of the command line, such as GetParams of a model registry.
    *args: what it is called with.

  Raises:
    UserError: an override names a parameter that isn't there.
  """
  try:
    return get(*args)
  except AttributeError as e:
    source = FLAGS.model_params_file_override or FLAGS.model_params_override and '--model_params_override'
    if not source:
      raise
    raise user_errors.UserError(f'{source}: there is no parameter {e}') from e


def ImportAll(report=lambda module, error: None, name=None):
  """Imports all of model_registry.

  Args:
    report: (module's name, exception) -> None: is told of each module that can't be imported. It must not hide the
      models of the others.
    name: a model whose module is imported too, or None.

  Returns:
    {name: class} of all models registered so far.
  """
  for module in _RegistryModules():
    try:
      importlib.import_module(module)
    except Exception as e:  # pylint: disable=broad-except
      report(module, e)
  try:
    _ImportModule(name or '')
  except Exception as e:  # pylint: disable=broad-except
    report(name.rpartition('.')[0], e)
  return lingvo_compat.RegisteredModels()


def _RegistryModules():
  """Returns the names of the modules in model_registry."""
  try:
    package = importlib.import_module(_PACKAGE)
  except ImportError:
    return []
  modules = pkgutil.walk_packages(package.__path__, _PACKAGE + '.', onerror=lambda _: None)
  return [m.name for m in modules if not m.name.endswith('_test')]


def _ImportModule(name):
  """Imports the module of a model, if Python finds it and the name has one."""
  if '.' in name:
    with _ImportsUnannounced():
      model_imports.ImportParams(name, require_success=False)


def _Similar(name, names):
  """Returns up to three of `names` that are like `name`, as a whole or in their last part."""
  similar = difflib.get_close_matches(name, names, n=3, cutoff=0.75)
  last_parts = {n: n.rpartition('.')[2].lower() for n in names}
  close = difflib.get_close_matches(name.rpartition('.')[2].lower(), set(last_parts.values()), n=3, cutoff=0.6)
  similar += [n for part in close for n in names if last_parts[n] == part and n not in similar]
  return similar[:3]
