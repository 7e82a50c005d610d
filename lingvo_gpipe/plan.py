r"""Says what a pipeline will take, before it is run: memory, time, and whether it fits.

  python -m lingvo_gpipe.plan --model=model_registry.lm.transformer.TransformerL1663 --device_memory=16GB \
    --num_stages=128 --num_micro_batches=32

Without --num_stages, --num_micro_batches or --recompute it finds the best ones for --num_devices. It needs neither the
devices nor the memory: layers are built without weights, one of each kind.
"""
import json

from lingvo_gpipe.launcher import quiet

# pylint: disable=g-import-not-at-top
with quiet.Stderr():
  from absl import app
  from absl import flags
  from lingvo import trainer as lingvo_trainer  # pylint: disable=unused-import
  from lingvo.core import cluster_factory

  from lingvo_gpipe import amounts
  from lingvo_gpipe import fill_drain
  from lingvo_gpipe import lingvo_compat
  from lingvo_gpipe.launcher import command_line
  from lingvo_gpipe.launcher import launcher_flags  # pylint: disable=unused-import
  from lingvo_gpipe.launcher import models
  from lingvo_gpipe.launcher import pipelines
  from lingvo_gpipe.launcher import user_errors
  from lingvo_gpipe.planning import candidate
  from lingvo_gpipe.planning import report
  from lingvo_gpipe.planning import search
  from lingvo_gpipe.planning import subject as subject_lib
# pylint: enable=g-import-not-at-top

FLAGS = flags.FLAGS

flags.DEFINE_string(
    'device_memory', None, 'Memory of a device, as 16GB or 16GiB, or a comma list with that of each stage\'s.')
flags.DEFINE_string(
    'device_flops', '10T', 'FLOPs a second that a device sustains (not its peak), or a comma list with those of each '
    'stage\'s. Only the times depend on it, and how unlike devices share the layers.')
flags.DEFINE_string('bandwidth', '10GB', 'Bytes a second that go from a device to the next.')
flags.DEFINE_integer(
    'num_devices', None, 'How many devices there are to choose from. Default: --num_stages, or else 8.', lower_bound=1)
flags.DEFINE_integer(
    'cores', None, 'Where the devices are virtual ones of one CPU (--stage_devices=cpu), how many cores they share.',
    lower_bound=1)
flags.DEFINE_bool('json', False, 'Print the plan as JSON.')

_OWN_FLAGS = ('device_memory', 'device_flops', 'bandwidth', 'num_devices', 'cores', 'json')
_SHARED_FLAGS = (
    'model', 'num_stages', 'num_micro_batches', 'recompute', 'schedule', 'in_flight', 'cost', 'partition',
    'model_params_override', 'list_models', 'debug')


def _Devices():
  """Returns the candidate.Devices that the flags describe, as many as there are to choose from."""
  count = FLAGS.num_devices or FLAGS.num_stages or 8
  if (FLAGS.num_stages or 1) > count:
    raise user_errors.UserError(
        f'--num_stages={FLAGS.num_stages} needs as many devices, and there are --num_devices={count}.')
  if not FLAGS.device_memory:
    raise user_errors.UserError('There is no --device_memory: say how much a device has, such as --device_memory=16GB.')
  return candidate.Devices(
      _PerDevice('device_memory', 'B', count), _PerDevice('device_flops', 'FLOPs', count),
      _Amount('bandwidth', FLAGS.bandwidth, 'B'), FLAGS.cores)


def _PerDevice(name, unit, count):
  """Returns the list of `count` numbers that a flag gives."""
  values = [_Amount(name, text, unit) for text in FLAGS[name].value.split(',')]
  if len(values) == 1:
    return values * count
  if len(values) != count:
    raise user_errors.UserError(
        f'--{name} lists {len(values)} devices, and there are {count}. Give one value for all, or one for each.')
  return values


def _Amount(name, text, unit):
  try:
    return amounts.Parse(text, unit)
  except ValueError as e:
    raise user_errors.UserError(f'--{name}: {e}') from e


def _Plan(subject, devices):
  """Returns (the candidate.Planner, the best Plan)."""
  costs_at = subject.CostsAt
  micro_batches = [FLAGS.num_micro_batches]
  if not FLAGS.num_micro_batches:
    costs_at = subject.EstimateAt
    micro_batches = search.Divisors(subject.batch)
  planner = candidate.Planner(costs_at, subject.batch, subject.slots, devices, subject.rule, subject.pipeline.in_flight)
  stages = [FLAGS.num_stages]
  if isinstance(subject.rule, list):
    stages = [_StagesOf(subject.rule, len(devices.memory))]
  elif not FLAGS.num_stages:
    stages = range(1, min(len(devices.memory), len(subject.layers)) + 1)
  recompute = [FLAGS.recompute] if FLAGS.recompute else fill_drain.RECOMPUTE_MODES
  schedules = [FLAGS.schedule] if FLAGS.schedule else subject.schedules
  return planner, search.Best(planner, stages, micro_batches, recompute, schedules)


def _StagesOf(boundaries, num_devices):
  """Returns how many stages a list of boundaries makes.

  Raises:
    UserError: --num_stages says otherwise, or there are fewer devices.
  """
  num_stages = len(boundaries) + 1
  listed = f'The boundaries {",".join(map(str, boundaries))} make {num_stages} stages'
  if FLAGS.num_stages not in (None, num_stages):
    raise user_errors.UserError(f'{listed}, not --num_stages={FLAGS.num_stages}. Leave that out.')
  if num_stages > num_devices:
    raise user_errors.UserError(
        f'{listed}, and there are {num_devices} devices to choose from. Set --num_devices={num_stages}.')
  return num_stages


def _Run():
  """Prints the plan that the flags ask for; returns the exit code."""
  devices = _Devices()
  with user_errors.Translated('planning'):
    params = models.Params(lingvo_compat.ModelRegistry().GetParams, FLAGS.model, 'Train')
    pipelines.Configure(
        params, FLAGS.model, num_stages=FLAGS.num_stages, num_micro_batches=FLAGS.num_micro_batches,
        in_flight=FLAGS.in_flight, cost=FLAGS.cost, partition=FLAGS.partition)
    with cluster_factory.ForTestingWorker(mode='sync', job='trainer_client'), quiet.Stderr():
      subject = subject_lib.Subject(params, FLAGS.model)
      planner, plan = _Plan(subject, devices)
      # The flag may ask for one that only the task's author can tell whether the task takes.
      schedules = dict.fromkeys([*subject.schedules, plan.choice.schedule])
      modes = search.Modes(planner, plan.choice, schedules)
      by_mode = {p.choice.recompute: planner.Memory(p.choice) for p in modes
                 if p.choice.schedule == plan.choice.schedule}
  data = report.Data(subject, FLAGS.model, devices, plan, modes, by_mode)
  print(json.dumps(data, indent=1) if FLAGS.json else report.Text(data))
  return 0 if data['fits'] else 1


def main(argv):
  """Does what the flags say; returns the exit code."""
  return command_line.Run(_Run, argv)


def main_cli():
  """The command's entry."""
  app.run(main, flags_parser=lambda argv: command_line.Parse(argv, _OWN_FLAGS + _SHARED_FLAGS))


if __name__ == '__main__':
  main_cli()
