"""Finds the pipelines of a model: among its params before it is built, among its layers afterwards."""
from lingvo.core import hyperparams

from lingvo_gpipe import pipelining_layer
from lingvo_gpipe.launcher import user_errors


def FindParams(params):
  """Returns the params of each PipeliningLayer in a tree of params, each once."""
  found = []

  def Enter(unused_key, value):
    if isinstance(value, hyperparams.InstantiableParams) and isinstance(value.cls, type) and issubclass(
        value.cls, pipelining_layer.PipeliningLayer) and not any(value is f for f in found):
      found.append(value)
    return True

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


def Configure(params, model_name, num_stages=None, num_micro_batches=None, recompute=None):
  """Sets the flags' values in each pipeline of a model's params.

  Args:
    params: the model's params, changed in place.
    model_name: for messages.
    num_stages: None leaves the model's own; so do the others.
    num_micro_batches: int or None.
    recompute: 'always', 'never' or None.

  Raises:
    UserError: a value is given that needs a pipeline, and the model has none.
  """
  pipelines = FindParams(params)
  given = [
      f'--{name}={value}' for name, value in
      (('num_stages', num_stages), ('num_micro_batches', num_micro_batches), ('recompute', recompute))
      if value is not None and not (name != 'recompute' and value == 1)]
  if given and not pipelines:
    raise user_errors.UserError(
        f'{model_name} has no PipeliningLayer, so there is nothing that {" or ".join(given)} could split. Put the '
        'layers to be pipelined into a lingvo_gpipe.PipeliningLayer.')
  for p in pipelines:
    if num_stages is not None:
      if p.cell_tpl and len(p.cell_tpl) != num_stages:
        raise user_errors.UserError(
            f'--num_stages={num_stages} doesn\'t fit the pipeline {p.name} of {model_name}: its cell_tpl lists '
            f'{len(p.cell_tpl)} cells, one a stage. Give the layers as `layers` to have them cut into any number.')
      p.num_stages = num_stages
    if num_micro_batches is not None:
      p.num_micro_batches = num_micro_batches
    if recompute is not None:
      p.recompute = recompute


def NumStages(params):
  """Returns how many stages the largest pipeline in a tree of params has; 1 without any."""
  return max([1] + [len(p.cell_tpl or []) or p.num_stages for p in FindParams(params)])
