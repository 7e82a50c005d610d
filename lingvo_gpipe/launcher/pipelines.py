"""Finds the pipelines of a model: among its params before it is built, among its layers afterwards."""
from lingvo.core import hyperparams

from lingvo_gpipe import partition
from lingvo_gpipe import pipelining_layer
from lingvo_gpipe.launcher import user_errors


def FindParams(params):
  """Returns the params of each PipeliningLayer in a tree of params, each once.

  What is inside of one isn't looked at: there may be thousands of layers.
  """
  found = []

  def Enter(unused_key, value):
    is_pipeline = isinstance(value, hyperparams.InstantiableParams) and isinstance(value.cls, type) and issubclass(
        value.cls, pipelining_layer.PipeliningLayer)
    if is_pipeline and not any(value is f for f in found):
      found.append(value)
    return not is_pipeline

  params.Visit(lambda key, value: None, Enter)
  return found


def FindLayers(layer):
  """Returns the PipeliningLayers in a tree of layers, in the order in which they were created."""
  found = []

  def Visit(value):
    if isinstance(value, (list, tuple)):
      for v in value:
        Visit(v)
    elif isinstance(value, dict):
      for v in value.values():
        Visit(v)
    elif isinstance(value, pipelining_layer.PipeliningLayer):
      found.append(value)
    elif hasattr(value, 'children'):
      Visit(value.children)

  Visit(layer)
  return found


def Configure(params, model_name, cost_cache=None, **values):
  """Sets the flags' values in each pipeline of a model's params.

  Args:
    params: the model's params, changed in place.
    model_name: for messages.
    cost_cache: a file for the times of layers, where the model names none.
    **values: {name of a flag and of a param of PipeliningLayer: value}, such as num_stages=4. None leaves the model's
      own. `partition` is text, as --partition takes it.

  Raises:
    UserError: a value is given that needs a pipeline, and the model has none, or that doesn't fit the model's.
  """
  pipelines = FindParams(params)
  values = {name: value for name, value in values.items() if value is not None}
  given = [f'--{name}={value}' for name, value in values.items() if value != 1]
  if given and not pipelines:
    raise user_errors.UserError(
        f'{model_name} has no PipeliningLayer, so there is nothing that {" or ".join(given)} could split. Put the '
        'layers to be pipelined into a lingvo_gpipe.PipeliningLayer.')
  if 'partition' in values:
    values['partition'] = ParsePartition(values['partition'])
    if isinstance(values['partition'], list):
      values.setdefault('num_stages', len(values['partition']) + 1)
  for p in pipelines:
    num_stages = values.get('num_stages')
    if p.cell_tpl and num_stages not in (None, len(p.cell_tpl)):
      raise user_errors.UserError(
          f'--num_stages={num_stages} doesn\'t fit the pipeline {p.name} of {model_name}: its cell_tpl lists '
          f'{len(p.cell_tpl)} cells, one a stage. Give the layers as `layers` to have them cut into any number.')
    p.Set(**values)
    if p.cost == 'time':
      p.cost_cache = p.cost_cache or cost_cache


def CheckInFlight(params, in_flight):
  """Raises a UserError for a value of --in_flight, or None, that no pipeline in a tree of params heeds."""
  schedules = {p.schedule for p in FindParams(params)}
  if in_flight and schedules and '1f1b' not in schedules:
    raise user_errors.UserError(
        f'--in_flight={in_flight} bounds the micro-batches under way with --schedule=1f1b, and the schedule is '
        f'{", ".join(sorted(schedules))}. Give that flag too, or leave this one out.')


def ParsePartition(text):
  """Returns a rule's name, or a list of layers, as --partition gives it.

  Raises:
    UserError: it is neither.
  """
  if text in partition.RULES:
    return text
  try:
    return [int(part) for part in text.split(',')]
  except ValueError:
    raise user_errors.UserError(
        f'--partition={text} is neither one of {", ".join(partition.RULES)} nor a comma list of layers, such as '
        '4,9,13: the first layer of each stage but the first, counted from 0.') from None


def NumStages(params):
  """Returns how many stages the largest pipeline in a tree of params has; 1 without any."""
  return max([1] + [len(p.cell_tpl or []) or p.num_stages for p in FindParams(params)])
