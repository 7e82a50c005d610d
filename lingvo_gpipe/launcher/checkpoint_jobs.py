"""Lingvo's evaler and decoder, on the stages' devices, with people in front of them.

They follow the checkpoints in LOGDIR/train, those of a training that is under way too, until that of the last step.
"""
import contextlib
import os

from lingvo import runners as lingvo_runners
import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe.launcher import quiet
from lingvo_gpipe.launcher import runners
from lingvo_gpipe.launcher import user_errors

# How metrics are printed.
_FORMATS = {'accuracy': '.3f', 'exact_match': '.3f', 'corpus_bleu': '.3f', 'bits_per_byte': '.2f'}
# Where there is one of these, it says enough.
_HEADLINES = ('accuracy', 'bits_per_byte')


class _CheckpointJob(runners.Stoppable):
  """Prints the metrics of checkpoints, says what it waits for, and refuses what it can't use.

  Attributes:
    at_end: whether this is what ends a training run, where the step need not be named.
  """
  at_end = False

  def _WriteSummaries(self, summary_writer, job_name, global_step, summaries, text_filename=None):
    super()._WriteSummaries(summary_writer, job_name, global_step, summaries, text_filename)
    metrics = {
        value.tag: value.simple_value for summary in summaries.values() for value in summary.value
        if value.HasField('simple_value')}
    self._Print(int(global_step), metrics)

  def _Print(self, step, metrics):
    """Prints the metric that says enough where there is one, else every metric."""
    dataset = self._job_name.partition('_')[2]
    headlines = {name: metrics[name] for name in _HEADLINES if name in metrics}
    for name, value in sorted((headlines or metrics).items()):
      if name in ('num_samples_in_batch', 'total_samples', 'examples/sec'):
        continue
      text = format(value, _FORMATS.get(name, '.6g'))
      print(f'{"" if self.at_end else f"step {step}: "}{dataset} {name.replace("_", " ")}: {text}', flush=True)

  def _RunOnLatestCheckpoints(self, sess=None, runner_fn=None, runner_dir=None):
    path = tf.train.latest_checkpoint(self._train_dir)
    if self._TrainerFinished(sess) and path in py_utils.GetProcessedCheckpoints(runner_dir):
      print(f'Nothing is left to do: {os.path.basename(path)} is the last checkpoint, and its results are in '
            f'{runner_dir}. Delete processed_ckpts.txt there to have them made again.', flush=True)
      quiet.UnusedGraphs()
      return
    super()._RunOnLatestCheckpoints(sess, runner_fn, runner_dir)

  def _FindNewCheckpoint(self, sess=None, processed_ckpts=None):
    path = tf.train.latest_checkpoint(self._train_dir)
    if not path or path in processed_ckpts:
      newer = f' newer than {os.path.basename(path)}' if path else ''
      print(f'waiting for a checkpoint{newer} in {self._train_dir}', flush=True)
    path = super()._FindNewCheckpoint(sess, processed_ckpts)
    if path:
      self._Check(path)
    return path

  def _Check(self, path):
    runners.CheckCheckpoint(path, self._graph, 'Give the --logdir of this model.')

  def _Explained(self, error):
    text = runners.ExplainedByData([self._task], error)
    return user_errors.UserError(f'{self._job_name} stopped. {text}') if text else error


class Evaler(_CheckpointJob, lingvo_runners.Evaler):
  """Takes the metrics of checkpoints."""

  def EvalCheckpoint(self, ckpt_id):
    path = os.path.join(self._train_dir, f'ckpt-{ckpt_id:08d}')
    if not tf.io.gfile.exists(path + '.index'):
      raise user_errors.UserError(f'There is no checkpoint {path}, so --job can\'t evaluate it.')
    self._Check(path)
    with self._Explaining():
      super().EvalCheckpoint(ckpt_id)

  def EvalLatestCheckpoint(self, last_path=None):
    with self._Explaining():
      super().EvalLatestCheckpoint(last_path)

  @contextlib.contextmanager
  def _Explaining(self):
    """Raises _Explained errors in place of what its body raises."""
    try:
      yield
    except tf.errors.OpError as e:
      error = self._Explained(e)
      if error is e:
        raise
      raise error from e

  @property
  def task_decodes(self):
    """Whether the task can be decoded, too."""
    return bool(self._model.GetTask(self._model_task_name).CreateDecoderMetrics())


class Decoder(_CheckpointJob, lingvo_runners.Decoder):
  """Decodes with checkpoints."""

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    if not self._task.CreateDecoderMetrics():
      raise user_errors.UserError(
          f'There is nothing to decode: the task {type(self._task).__name__} has no decoder metrics. Define its methods '
          'DecodeWithTheta, CreateDecoderMetrics and PostProcessDecodeOut.')
