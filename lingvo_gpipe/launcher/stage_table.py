"""The table before training: what each stage holds."""
from lingvo_gpipe import amounts
from lingvo_gpipe.launcher import pipelines
from lingvo_gpipe.launcher import stage_devices
from lingvo_gpipe.launcher import text_table

_HEADER = ('stage', 'device', 'layers', 'parameters', 'cost')


def Format(model):
  """Describes how a model is spread over devices.

  Args:
    model: a built Lingvo model or layer.

  Returns:
    Text of a few lines: for each pipeline a table of its stages, then the parameters in all.
  """
  lines = []
  layers = pipelines.FindLayers(model)
  for layer in layers:
    if len(layers) > 1:
      lines.append(f'{layer.path}:')
    rows = [(str(i), stage_devices.ShortName(stage.device), text_table.Names(stage.layers), f'{stage.num_params:,}',
             _Cost(layer.params.cost, stage)) for i, stage in enumerate(layer.stages)]
    lines += text_table.Lines(_HEADER, rows, left=('device', 'layers'))
    if len(layer.stages) > 1 and layer.imbalance:
      lines.append(_Balance(*layer.imbalance))
  total = sum(v.shape.num_elements() or 0 for v in model.vars.Flatten())
  staged = sum(stage.num_params for layer in layers for stage in layer.stages)
  if not layers:
    lines.append(f'{total:,} parameters, no pipeline')
  elif total > staged:
    lines.append(f'{total:,} parameters, {total - staged:,} of them outside of the stages')
  else:
    lines.append(f'{total:,} parameters')
  return '\n'.join(lines)


def _Cost(kind, stage):
  """Returns a stage's share of the cost, and the cost itself where it is known."""
  share = f'{stage.cost_share:.1%}'
  if stage.cost is None:
    return share
  cost = amounts.FormatSeconds(stage.cost) if kind == 'time' else amounts.Format(stage.cost, 'FLOPs')
  return f'{cost}  {share:>5}'


def _Balance(imbalance, least):
  """Says how far from even the stages are, and whether they need be."""
  text = f'the largest stage costs {imbalance:.1%} more than if all were equal'
  return text + (f'; the best cut: {least:.1%}' if imbalance > least + 5e-4 else '')
