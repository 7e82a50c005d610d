r"""Exports a trained model as a SavedModel, for programs that have TensorFlow and nothing of this.

  python -m lingvo_gpipe.export --model=model_registry.image.resnet.ResNetDigits --logdir=/tmp/digits \
    --export_dir=/tmp/digits_model

Into how many stages the model was cut when it was trained doesn't matter: it is exported for one device, without
micro-batches. What goes in and comes out, the task's Inference says. With a decay of `train.ema_decay` the averages of
the weights are exported, as they are what evaluation uses.
"""
import os

from lingvo_gpipe.launcher import quiet

# pylint: disable=g-import-not-at-top
with quiet.Stderr():
  from absl import app
  from absl import flags
  from lingvo import trainer as lingvo_trainer  # pylint: disable=unused-import
  import lingvo.compat as tf
  from lingvo.core import cluster_factory
  from lingvo.core import inference_graph_exporter

  from lingvo_gpipe import checkpoint_state
  from lingvo_gpipe import lingvo_compat
  from lingvo_gpipe import saved_model
  from lingvo_gpipe.launcher import command_line
  from lingvo_gpipe.launcher import launcher_flags  # pylint: disable=unused-import
  from lingvo_gpipe.launcher import models
  from lingvo_gpipe.launcher import pipelines
  from lingvo_gpipe.launcher import user_errors
# pylint: enable=g-import-not-at-top

FLAGS = flags.FLAGS

flags.DEFINE_string('export_dir', None, 'Where the SavedModel is written: a directory that does not exist yet.')
flags.DEFINE_string(
    'checkpoint', None, 'The checkpoint, such as LOGDIR/train/ckpt-00000400. Default: the newest in LOGDIR/train.')

_OWN_FLAGS = ('export_dir', 'checkpoint')
_SHARED_FLAGS = (
    'model', 'logdir', 'model_params_override', 'model_params_file_override', 'model_task_name',
    'inference_dataset_name', 'list_models', 'debug')


def _Checkpoint():
  """Returns the path of the checkpoint that the flags mean."""
  if FLAGS.checkpoint:
    if not tf.io.gfile.exists(FLAGS.checkpoint + '.index'):
      raise user_errors.UserError(
          f'There is no checkpoint --checkpoint={FLAGS.checkpoint}: the file {FLAGS.checkpoint}.index does not exist.')
    return FLAGS.checkpoint
  if not FLAGS.logdir:
    raise user_errors.UserError('There is no --logdir: name the one that the model was trained in, or a --checkpoint.')
  folder = os.path.join(FLAGS.logdir, 'train')
  path = checkpoint_state.Latest(folder)
  if not path:
    raise user_errors.UserError(f'There is no checkpoint in {folder}. Train the model, or name a --checkpoint.')
  return path


def _CheckExportDir():
  if not FLAGS.export_dir:
    raise user_errors.UserError('There is no --export_dir: name a directory that does not exist yet.')
  if tf.io.gfile.exists(FLAGS.export_dir):
    raise user_errors.UserError(
        f'--export_dir={FLAGS.export_dir} exists already, and nothing is overwritten. Name another one.')


def _Params():
  """Returns the model's params for one device."""
  dataset = FLAGS.inference_dataset_name
  if not models.HasDataset(FLAGS.model, dataset):
    dataset = 'Train'  # Nothing is read: the input generator only says what examples are like.
  params = models.Params(lingvo_compat.ModelRegistry().GetParams, FLAGS.model, dataset)
  if 'task' not in params and not FLAGS.model_task_name:
    raise user_errors.UserError(f'{FLAGS.model} has several tasks. Name the one to export by --model_task_name.')
  # Lingvo's InferenceGraphExporter does so too. Averages of the weights then are no variables of their own.
  params.is_inference = True
  for p in pipelines.FindParams(params):
    p.Set(num_stages=1, num_micro_batches=1, partition='min_max', stage_devices=[''])
  return params


def _Signatures(task):
  """Returns {name: saved_model.Signature} of what a task's Inference builds."""
  try:
    subgraphs = task.Inference()
  except NotImplementedError as e:
    raise user_errors.UserError(
        f'{FLAGS.model} can\'t be exported, since its task says nothing of what goes in and comes out. Give '
        f'{type(task).__name__} a method Inference that returns {{\'default\': (outputs, inputs)}}, two dicts of '
        'tensors by name, or derive it from lingvo_gpipe.PipelinedTask.') from e
  if isinstance(subgraphs, dict):
    subgraphs = inference_graph_exporter.ConvertSubgraphDictToProto(subgraphs)
  tensor = tf.get_default_graph().get_tensor_by_name

  def Tensors(names):
    return {key: tensor(names[key]) for key in sorted(names)}

  return {
      'serving_default' if name == 'default' else name: saved_model.Signature(Tensors(g.feeds), Tensors(g.fetches))
      for name, g in subgraphs.subgraphs.items()}


def _SavedNames(model):
  """Returns {a variable's name: its average's}, for those of which evaluation uses an average over steps."""
  if not model.ema:
    return {}
  return {v.op.name: name for name, v in model.ema.variables_to_restore(model.variables_for_ema).items()}


def _Run():
  """Exports the model; returns the exit code."""
  _CheckExportDir()
  checkpoint = _Checkpoint()
  tf.config.set_visible_devices([], 'GPU')  # Nothing is computed, and another process may have their memory.
  FLAGS.enable_asserts = False  # They are Lingvo's operations.
  with user_errors.Translated('building the model'):
    with tf.Graph().as_default(), cluster_factory.ForTestingWorker(mode='sync', job='decoder', do_eval=True):
      model = _Params().Instantiate()
      signatures = _Signatures(model.GetTask(FLAGS.model_task_name))
      saved_names = _SavedNames(model)
    try:
      saved_model.Save(signatures, saved_names, checkpoint, FLAGS.export_dir)
    except tf.errors.OpError as e:
      raise user_errors.UserError(f'--export_dir={FLAGS.export_dir} can\'t be written: {e.message}') from e
  print(f'{checkpoint} of {FLAGS.model} is in {FLAGS.export_dir}')
  for name, signature in signatures.items():
    print(f'{name}\n  takes  {_Listed(signature.inputs)}\n  gives  {_Listed(signature.outputs)}')
  return 0


def _Listed(tensors):
  """Returns such as 'image float32 [?, 8, 8, 1], ...'."""
  def Dims(x):
    return ', '.join('?' if d is None else str(d) for d in x.shape.as_list())
  return ', '.join(f'{name} {x.dtype.name} [{Dims(x)}]' for name, x in tensors.items())


def main_cli():
  """The command's entry."""
  app.run(
      lambda argv: command_line.Run(_Run, argv),
      flags_parser=lambda argv: command_line.Parse(argv, _OWN_FLAGS + _SHARED_FLAGS))


if __name__ == '__main__':
  main_cli()
