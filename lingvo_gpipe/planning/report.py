"""A plan for people, and the same as data for JSON."""

from lingvo_gpipe import amounts
from lingvo_gpipe.launcher import text_table

_PARTS = ('weights', 'gradients', 'slots')


def Text(data):
  """Data's dict as text: a table of the stages, one of the modes, a summary."""
  unit = 'second' if data['cost'] == 'time' else 'FLOP'
  lines = [
      f"{data['model']}: {data['layers']:,} layers, {data['parameters']:,} "
      f"parameters, {data['batch']} examples a step",
      f"{data['num_stages']} stages, {data['num_micro_batches']} micro-batches, "
      f"schedule={data['schedule']}, recompute={data['recompute']}; each "
      f'{unit} ' + ('was measured on this machine' if unit == 'second' else
                    'is taken at ' + _Rates(data['device_flops'])),
      '',
      *_Stages(data), '', *_Modes(data), '', *_Summary(data)
  ]
  return '\n'.join(lines)


def Data(subject, model, devices, plan, modes, memory_by_mode):
  """A plan as a dict of plain values; bytes, seconds, shares of 1.

  Args:
    subject: The subject.Subject.
    model: Its name.
    devices: candidate.Devices.
    plan: The candidate.Plan.
    modes: Plans of the same number of stages and micro-batches, in every mode.
    memory_by_mode: {mode: StageMemory} for the plan's schedule.

  Returns:
    A dict.
  """
  names = [p.name for p in subject.layers]
  return dict(
      model=model,
      cost=subject.pipeline.cost,
      layers=len(names),
      batch=subject.batch,
      parameters=sum(s.num_params for s in plan.stages),
      slots_per_parameter=subject.slots,
      device_flops=list(devices.flops),
      bandwidth=devices.bandwidth,
      **_Choice(plan),
      partition=plan.boundaries,
      in_flight=subject.pipeline.in_flight if plan.choice.schedule == '1f1b' else None,
      imbalance=plan.imbalance,
      needed_memory=max(plan.no_fit.needed) if plan.no_fit else None,
      stages=[
          _Stage(k, stage, names, memory_by_mode)
          for k, stage in enumerate(plan.stages)
      ],
      modes=[_Choice(p) for p in modes])


def _Choice(plan):
  """What a plan's choice comes to."""
  return dict(
      num_stages=plan.choice.num_stages,
      num_micro_batches=plan.choice.num_micro_batches,
      schedule=plan.choice.schedule,
      recompute=plan.choice.recompute,
      step_seconds=plan.step_seconds,
      examples_per_second=plan.examples_per_second,
      bubble=plan.bubble,
      largest_bytes=max(s.total_bytes for s in plan.stages),
      fits=plan.fits)


def _Stage(k, stage, names, memory_by_mode):
  return dict(
      stage=k,
      layers=names[stage.start:stage.end],
      parameters=stage.num_params,
      activations={
          mode: memory.Of(k, stage.start, stage.end).activations
          for mode, memory in memory_by_mode.items()
      },
      bytes=stage.total_bytes,
      device_memory=stage.limit,
      forward_seconds=stage.forward_seconds,
      recompute_seconds=stage.recompute_seconds,
      backward_seconds=stage.backward_seconds,
      **{part: getattr(stage.memory, part) for part in _PARTS})


def _Rates(flops):
  rates = [amounts.Format(f, 'FLOPs/s') for f in flops]
  return rates[0] if len(set(rates)) == 1 else ', '.join(rates)


def _Stages(data):
  """The table of the stages; times are those of a micro-batch."""
  modes = list(data['stages'][0]['activations'])
  header = ['stage', 'layers', 'parameters', *_PARTS, *modes, 'in all', 'of', 'time']
  rows = []
  for s in data['stages']:
    seconds = sum(s[f'{w}_seconds'] for w in ('forward', 'recompute', 'backward'))
    rows.append([
        str(s['stage']),
        text_table.Names(s['layers']), f"{s['parameters']:,}",
        *(amounts.Format(s[part], 'B') for part in _PARTS),
        *(amounts.Format(s['activations'][mode], 'B') for mode in modes),
        amounts.Format(s['bytes'], 'B'),
        amounts.Format(s['device_memory'], 'B'),
        amounts.FormatSeconds(seconds)
    ])
  lines = text_table.Lines(header, rows, left=('layers',))
  first = lines[0].index(f"  {modes[0]}")
  return [' ' * (first + 2) + 'activations, by what is recomputed', *lines]


def _Modes(data):
  rows = [[
      m['schedule'], m['recompute'],
      amounts.FormatSeconds(m['step_seconds']), _Rate(m['examples_per_second']),
      f"{m['bubble']:.1%}", amounts.Format(m['largest_bytes'], 'B'),
      'yes' if m['fits'] else 'no'
  ] for m in data['modes']]
  return text_table.Lines(
      ['schedule', 'recompute', 'step', 'examples/s', 'bubble', 'largest stage',
       'fits'], rows, left=('schedule', 'recompute'))


def _Rate(value):
  return f'{value:,.0f}' if value >= 1000 else f'{value:.3g}'


def _Summary(data):
  lines = [
      f"A step takes {amounts.FormatSeconds(data['step_seconds'])}: "
      f"{_Rate(data['examples_per_second'])} examples/s. Devices wait "
      f"{data['bubble']:.1%} of the time. The slowest stage takes "
      f"{data['imbalance']:.1%} more than if all took the same."
  ]
  if data['fits']:
    lines.append('It fits. To train so: ' + Flags(data))
    return lines
  largest = max(data['stages'], key=lambda s: s['bytes'] / s['device_memory'])
  lines.append(
      f"It does not fit: stage {largest['stage']} needs "
      f"{amounts.Format(largest['bytes'], 'B')}, and its device has "
      f"{amounts.Format(largest['device_memory'], 'B')}.")
  if data['needed_memory']:
    lines.append(
        'The least memory a device with which some cut would fit is '
        f"{amounts.Format(data['needed_memory'], 'B')}.")
  return lines


def Flags(data):
  """The trainer's flags that make this plan come true."""
  flags = [
      f'--{name}={data[name]}' for name in
      ('num_stages', 'num_micro_batches', 'recompute', 'schedule', 'in_flight')
      if data[name] is not None
  ]
  if data['partition']:
    flags.append('--partition=' + ','.join(map(str, data['partition'])))
  return ' '.join(flags)
