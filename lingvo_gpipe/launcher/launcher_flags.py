"""The launcher's own flags, and its defaults for Lingvo's and what those may say."""
import re

from absl import flags
from lingvo import trainer as lingvo_trainer  # pylint: disable=unused-import  # It defines the flags that are checked.

from lingvo_gpipe import fill_drain
from lingvo_gpipe import schedule

FLAGS = flags.FLAGS

flags.DEFINE_integer(
    'num_stages', None, 'Number of pipeline stages, one a device. Default: the model\'s own.', lower_bound=1)
flags.DEFINE_integer(
    'num_micro_batches', None,
    'Number of micro-batches that a mini-batch is split into. Default: the model\'s own.', lower_bound=1)
flags.DEFINE_string(
    'stage_devices', None,
    'Where the stages run: cpu (that many virtual CPU devices), gpu, or a comma list with a device for each stage, '
    'such as gpu:0,gpu:2. Stages that are a multiple of the devices take them in turns (interleaved stages, which wait '
    'less). Default: GPUs where there are enough, else virtual CPU devices.')
flags.DEFINE_enum(
    'recompute', None, list(fill_drain.RECOMPUTE_MODES),
    'What the backward pass recomputes of the stages\' forward pass: all of it, all but the last micro-batch\'s, all '
    'but products with weights (matrix products, convolutions), nothing. In this order it takes more memory and less '
    'work. Default: the model\'s own.')
flags.DEFINE_enum(
    'schedule', None, list(schedule.SCHEDULES),
    'gpipe: all micro-batches go forward, then all go back. 1f1b: each goes back as soon as it is through, so that '
    'memory does not grow with their number. Default: the model\'s own.')
flags.DEFINE_integer(
    'in_flight', None,
    'With --schedule=1f1b, how many micro-batches are under way at most. Default: the model\'s own, else one more than '
    'there are stages.', lower_bound=1)
flags.DEFINE_enum(
    'cost', None, ['flops', 'time'],
    'What the stages are balanced by: the FLOPs of their layers, or the time that each layer takes on its device, '
    'measured once. Default: the model\'s own.')
flags.DEFINE_string(
    'partition', None,
    'How the layers are cut into stages: min_max (the slowest stage is as fast as can be), least_variance, histogram '
    '(as lingvo.core.gpipe cuts them), or a comma list of the first layer of each stage but the first, counted from '
    '0. Default: the model\'s own.')
flags.DEFINE_integer(
    'random_seed', 1,
    'Seed of the initial weights and of random operations that have none. Runs with the same seed begin with the same '
    'weights, whatever their number of stages. Negative: other weights in every run.')
flags.DEFINE_bool(
    'reproducible', True,
    'Losses are the same to the last bit for any number of stages: TensorFlow then adds numbers in the order in which '
    'the graph has them. Without it, it may group sums by device, and training makes more of the difference.')
flags.DEFINE_bool('list_models', False, 'List the registered models and exit.')
flags.DEFINE_bool(
    'eval_at_end', True, 'When training is done, evaluate the model on its Test dataset, where it has one.')
flags.DEFINE_bool('debug', False, 'Show the traceback of every error.')

OWN_FLAGS = (
    'num_stages', 'num_micro_batches', 'stage_devices', 'recompute', 'schedule', 'in_flight', 'cost', 'partition',
    'random_seed', 'reproducible', 'list_models', 'eval_at_end', 'debug')
# Of Lingvo's many flags, those that --help shows.
COMMON_FLAGS = ('model', 'logdir', 'job', 'mode', 'run_locally', 'model_params_override', 'saver_max_to_keep')
# Flags that say how many devices there are: who gives one of them wants Lingvo's own way of counting devices.
_DEVICE_COUNT_FLAGS = ('worker_gpus', 'worker_tpus', 'worker_split_size', 'worker_replicas', 'ps_gpus', 'ps_replicas')


# Of each mode that runs jobs, the one that trains.
TRAINING_JOBS = {'sync': 'trainer_client', 'async': 'trainer'}
_MODES = (
    *TRAINING_JOBS, 'shell', 'inspect_evaler', 'inspect_decoder', 'inspect_model', 'inspect_params',
    'write_inference_graph')

# Without these, Lingvo ends with a bare assertion.
flags.register_validator('mode', lambda mode: mode in _MODES, f'It is one of {", ".join(_MODES)}.')


@flags.multi_flags_validator(['mode', 'job'])
def _CheckJobs(values):
  """Raises a ValidationError for a job that the mode doesn't have, or an evaler_once job that names no checkpoint."""
  mode, job = values['mode'], values['job']
  trains = TRAINING_JOBS.get(mode)
  if trains and {*TRAINING_JOBS.values()} & {*job.split(',')} - {trains}:
    raise flags.ValidationError(f'With --mode={mode} the job that trains is {trains}.')
  if job.startswith('evaler_once_') and not re.fullmatch(r'evaler_once_[^_@]+@\d+', job):
    raise flags.ValidationError('Such a job names a dataset and a step, as in --job=evaler_once_test@400.')
  return True


@flags.multi_flags_validator(
    ['worker_gpus', 'worker_tpus', 'worker_split_size'],
    'So many devices (one if none are given) are not a multiple of --worker_split_size.')
def _SplitsFillAReplica(values):
  """Whether a replica's devices are some whole splits."""
  return (values['worker_gpus'] or values['worker_tpus'] or 1) % max(1, values['worker_split_size']) == 0


def SetDefaults():
  """Before the command line is parsed: synchronous training."""
  FLAGS.set_default('mode', 'sync')


def ApplyLocalDefaults():
  """After the command line is parsed: one process that trains, unless told otherwise, and saves checkpoints.

  Lingvo's default is a controller beside the trainer, which waits half a minute for it. The trainer leaves them to it
  where there is one.
  """
  elsewhere = (
      FLAGS.cluster_spec or FLAGS.tf_master or FLAGS.tpu or FLAGS.infer_tpu_cluster or FLAGS.use_eager)
  # Of asynchronous trainers each would restore what all share.
  of_many = FLAGS.cluster_spec and FLAGS.mode == 'sync'
  if FLAGS.mode not in TRAINING_JOBS or elsewhere and not of_many:
    return
  if not elsewhere:
    FLAGS.run_locally = FLAGS.run_locally or 'cpu'
    FLAGS.job = FLAGS.job or TRAINING_JOBS[FLAGS.mode]
  jobs = FLAGS.job.split(',')
  controller = 'controller' in jobs or re.search(r'(^|@)controller=', FLAGS.cluster_spec)
  if TRAINING_JOBS[FLAGS.mode] in jobs and not controller and not FLAGS['checkpoint_in_trainer_cpu'].present:
    FLAGS.checkpoint_in_trainer_cpu = True


def CountsDevicesAsLingvo():
  """Returns whether the command line says how many devices there are, in Lingvo's flags."""
  return any(FLAGS[name].present for name in _DEVICE_COUNT_FLAGS)
