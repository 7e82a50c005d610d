"""The table before training: what each stage holds."""
from lingvo_gpipe.launcher import pipelines
from lingvo_gpipe.launcher import stage_devices

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
    lines += _Table(
        [(str(i), stage_devices.ShortName(stage.device), _Names(stage.layers), f'{stage.num_params:,}',
          f'{stage.cost_share:.1%}') for i, stage in enumerate(layer.stages)])
  total = sum(v.shape.num_elements() or 0 for v in model.vars.Flatten())
  staged = sum(stage.num_params for layer in layers for stage in layer.stages)
  if not layers:
    lines.append(f'{total:,} parameters, no pipeline')
  elif total > staged:
    lines.append(f'{total:,} parameters, {total - staged:,} of them outside of the stages')
  else:
    lines.append(f'{total:,} parameters')
  return '\n'.join(lines)


def _Names(names):
  """Returns the number of layers and which: '5: conv0 ... block3'."""
  if not names:
    return '0'
  return f'{len(names)}: ' + (names[0] if len(names) == 1 else f'{names[0]} ... {names[-1]}')


def _Table(rows):
  """Returns the lines of a table: text columns to the left, the stage and numbers to the right."""
  widths = [max(len(row[i]) for row in [_HEADER] + rows) for i in range(len(_HEADER))]
  return ['  '.join(
      cell.ljust(width) if title in ('device', 'layers') else cell.rjust(width)
      for title, cell, width in zip(_HEADER, row, widths)).rstrip() for row in [_HEADER] + rows]
