"""The list of registered models: how large they are, what they train on, and their pipelines."""
import inspect
import re
import sys

from lingvo.core import cluster_factory

from lingvo_gpipe.launcher import models
from lingvo_gpipe.launcher import parameter_count
from lingvo_gpipe.launcher import pipelines
from lingvo_gpipe.launcher import quiet
from lingvo_gpipe.launcher import text_table

_HEADER = ('model', 'parameters', 'data', 'stages', 'micro-batches', '')
_UNKNOWN = '-'


def Print(name=None, stream=None, errors=None):
  """Prints a table of the registered models.

  A row has the model's name, its parameters, the input generator that it trains with, its own number of stages and of
  micro-batches, and the first line of its docstring. Where there is no such thing there is a dash; where it can't be
  told, too, and the errors follow the table.

  Args:
    name: a model whose module is imported, so that its models are listed too; or None.
    stream: a text file; stdout by default.
    errors: a text file for the errors; stderr by default.
  """
  found = []
  registered = models.ImportAll(lambda module, e: found.append(f'{module} can\'t be imported: {_Text(e)}'), name)
  counter = parameter_count.ParameterCount()
  # With a cluster at hand, Lingvo needn't make one for each layer's params.
  with quiet.Stderr(), cluster_factory.ForTestingWorker(mode='sync', job='trainer_client'):
    rows = [_Row(key, registered[key], counter, found) for key in sorted(registered)]
  for line in text_table.Lines(_HEADER, rows, left=('model', 'data', '')):
    print(line, file=stream or sys.stdout)
  for line in found:
    print(line, file=errors or sys.stderr)


def _Row(name, cls, counter, errors):
  """Returns a model's row of the table; adds to `errors`, a list of lines."""
  model = cls()

  def Try(what, tell):
    try:
      return tell()
    except Exception as e:  # pylint: disable=broad-except
      # A model that can't be built here must not hide the others.
      errors.append(f'{name}: {what} can\'t be told: {_Text(e)}')
      return None

  tasks = Try('its params', lambda: _Tasks(model)) or []
  found = [p for task in tasks for p in pipelines.FindParams(task)]
  stages = ', '.join(str(pipelines.NumStages(p)) for p in found)
  micro_batches = ', '.join(str(p.num_micro_batches) for p in found)
  count = Try('the number of its parameters', lambda: sum(map(counter.Of, tasks)))
  data = Try('its data', lambda: _Data(name, model))
  cells = [f'{count:,}' if count else '', data, stages, micro_batches]
  return [name, *(cell or _UNKNOWN for cell in cells), _Summary(cls)]


def _Tasks(model):
  """Returns the params of each of a model's tasks."""
  params = model.Model()
  return [params.task] if 'task' in params else [task for _, task in params.task_params.IterParams()]


def _Data(name, model):
  """Returns the name of what a model trains on, by its input generators; empty where it has none."""
  if not models.HasDataset(name, 'Train'):
    return ''
  data = model.GetDatasetParams('Train')
  inputs = [data] if 'cls' in data else [p for _, p in data.IterParams()]
  return ', '.join(re.sub(r'(?<=.)Input(Generator)?$', '', p.cls.__name__) for p in inputs)


def _Summary(registered):
  """Returns the first line of the docstring of a registered model; its wrapper's own says nothing."""
  doc = inspect.cleandoc(registered.__mro__[1].__doc__ or '')
  return doc.partition('\n')[0]


def _Text(error):
  return f'{type(error).__name__}: {" ".join(str(error).split())}'
