"""Lingvo's runners, on the stages' devices, with people in front of them.

The training loop stays Lingvo's. It calls `_ShouldStop` before each step and `_SummarizeValue` for each metric after
it, and that is where `Trainer` shows progress, answers Ctrl-C and saves the last checkpoint.
"""
import os
import re
import sys
import textwrap
import threading

from absl import flags
from lingvo import runners
import lingvo.compat as tf
from lingvo.core import py_utils
from tensorflow.core.protobuf import rewriter_config_pb2

from lingvo_gpipe import checkpoint
from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.launcher import metrics_log
from lingvo_gpipe.launcher import progress
from lingvo_gpipe.launcher import stage_devices
from lingvo_gpipe.launcher import user_errors

FLAGS = flags.FLAGS


class _OnStageDevices:
  """A runner whose graph is seeded and whose sessions have the stages' devices."""

  @property
  def _graph(self):
    return self._seeded_graph

  @_graph.setter
  def _graph(self, graph):
    # Lingvo seeds a variable's initial value by its name, or by its layer's random_seed, only in a graph with a seed.
    graph.seed = FLAGS.random_seed if FLAGS.random_seed >= 0 else None
    self._seeded_graph = graph

  def _GetSession(self, **kwargs):
    graph = kwargs.pop('graph', self._graph)
    config = py_utils.SessionConfig(**kwargs)
    config.device_count.update(stage_devices.DeviceCount(self._cluster.params.stage_devices))
    if FLAGS.reproducible:
      config.graph_options.rewrite_options.arithmetic_optimization = rewriter_config_pb2.RewriterConfig.OFF
    return tf.Session(self._tf_master, graph=graph, config=config)


class Stoppable(_OnStageDevices):
  """A runner that stops on a signal, and on an error when it runs locally.

  Attributes:
    stop_signals: a StopSignals, or None.
  """
  stop_signals = None

  def _ShouldStop(self, sess=None, step=None, check_early_stop=True):
    if self.stop_signals and self.stop_signals.received:
      return True
    return super()._ShouldStop(sess, step, check_early_stop)

  def _SetStatusMessage(self, message, retrying=False):
    super()._SetStatusMessage(message, retrying)
    if retrying:
      print('trying again after: ' + textwrap.shorten(message, 300), file=sys.stderr, flush=True)

  def _RunLoop(self, job_name, loop_func, loop_args=(), cleanup_func=None):
    """Runs a loop; only where there are other machines, which may come back, again after an error."""
    if not FLAGS.run_locally:
      super()._RunLoop(job_name, loop_func, loop_args, cleanup_func)
      return
    try:
      loop_func(*loop_args)
    except Exception as e:  # pylint: disable=broad-except
      error = self._Explained(e)
      if threading.current_thread() is threading.main_thread():
        if error is e:
          raise
        raise error from e
      # Nobody waits for this thread, and the others would never end.
      user_errors.Print(error, debug=FLAGS.debug or error is e)
      os._exit(user_errors.EXIT_CODE)  # pylint: disable=protected-access

  def _Explained(self, error):
    """Returns a UserError in place of what a person can put right, else the error itself."""
    return error


class Controller(Stoppable, runners.Controller):
  """Saves the checkpoints, where the trainer doesn't."""


class Trainer(Stoppable, runners.Trainer):
  """Trains, and tells about it.

  Attributes:
    last_step: number of steps done, or None before the loop begins.
  """
  last_step = None

  def __init__(self, *args, **kwargs):
    with lingvo_compat.FastNorms():
      super().__init__(*args, **kwargs)
    self._values = {}
    self._progress = None
    self._metrics_log = None
    self._loop_thread = None

  @property
  def model(self):
    return self._model

  def TrainAlone(self):
    """Takes a session of its own instead of the local server's, which other jobs would need; its steps are faster."""
    if not self.enqueue_ops:  # Those run in other sessions, beside the training loop.
      self._tf_master = ''

  def _Loop(self):
    self._loop_thread = threading.get_ident()
    if self._progress:  # A machine went away and came back.
      self._progress.Close()
    self._progress, self._values = None, {}
    path = tf.train.latest_checkpoint(self._train_dir)
    if path:
      CheckCheckpoint(path, self._graph, 'Give another --logdir to start anew.')
    super()._Loop()

  def _SummarizeValue(self, steps, tag, value, writer=None):
    super()._SummarizeValue(steps, tag, value, writer)
    if writer is None:
      self._values[tag] = value

  def _ShouldStop(self, sess=None, step=None, check_early_stop=True):
    stop = super()._ShouldStop(sess, step, check_early_stop)
    if threading.get_ident() == self._loop_thread:
      self._AfterStep(sess, int(step), stop)
    return stop

  def _AfterStep(self, sess, step, stop):
    """Runs before the first step and after each one."""
    if self._progress is None:
      print(f'{"resuming after" if step else "starting at"} step {step} of {self.params.train.max_steps}', flush=True)
      self._progress = progress.Progress(step, self.params.train.max_steps)
      self._metrics_log = metrics_log.MetricsLog(os.path.join(self._train_dir, 'metrics.jsonl'))
    elif step != self.last_step:
      self._progress.Step(step, float(self._values['loss']), float(self._values['num_samples_in_batch']))
      self._metrics_log.Write(step, self._values)
    self._values = {}  # Other tasks have other metrics.
    self.last_step = step
    if stop:
      self._progress.Close()
      self._SaveLast(sess, step)
      if self._summary_writer:
        self._summary_writer.flush()
      self._early_stop = None  # Its runs would now wait five minutes for a controller to end first.

  def _SaveLast(self, sess, step):
    """Saves the checkpoint of the last step, unless that was done already, or is the controller's to do."""
    if not FLAGS.checkpoint_in_trainer_cpu:
      return
    path = tf.train.latest_checkpoint(self._train_dir)
    if not (path and path.endswith(f'-{step:08d}')):
      self._checkpointer.Save(sess, step, sync=True)

  def _Explained(self, error):
    if self._progress:
      self._progress.Close()
    message = getattr(error, 'message', None) or str(error)
    data = ExplainedByData(self._model.tasks, error)
    if data:
      text = data
    elif isinstance(error, tf.errors.OutOfRangeError):
      text = ('The training data came to an end. Repeat it in the input generator, or set train.max_steps to what it '
              'holds.')
    elif isinstance(error, tf.errors.ResourceExhaustedError):
      text = ('A device is out of memory. More stages, more micro-batches, --recompute=always or a smaller batch need '
              f'less of it. TensorFlow says: {_LineWith(message, "OOM")}')
    elif isinstance(error, tf.errors.InvalidArgumentError) and re.search('had (NaN|Inf)', message):
      text = ('The loss or another tensor became infinite or not a number. A lower learning rate or a bound on the '
              f'gradients\' norm is the usual cure. TensorFlow says: {_LineWith(message, "had NaN|had Inf")}')
    else:
      return error
    return user_errors.UserError(f'Training stopped after step {self.last_step}. {text}')


def CheckCheckpoint(path, graph, what_to_do):
  """Refuses a checkpoint of another model, which Lingvo would load where only the shapes differ.

  Args:
    path: the checkpoint's path.
    graph: the model's graph.
    what_to_do: a sentence.

  Raises:
    UserError: the checkpoint lacks a variable of the model, or has it in another shape.
  """
  with graph.as_default():
    shapes = {
        v.op.name: v.shape for v in tf.global_variables()
        if not v.op.name.startswith('async_ckpt/')}  # What Lingvo copies a variable to, to save it in the background.
  try:
    checkpoint.Check(path, shapes)
  except ValueError as e:
    raise user_errors.UserError(f'{e} {what_to_do}') from e


def ExplainedByData(tasks, error):
  """Returns what an input generator says of an error that came up while it read its data; None if none did."""
  if not isinstance(error, tf.errors.OpError):
    return None
  texts = [task.input.ExplainError(error) for task in tasks if hasattr(task.input, 'ExplainError')]
  return next((text for text in texts if text), None)


def _LineWith(message, pattern):
  """Returns the first line of a text in which a pattern occurs, or else its first line."""
  lines = message.strip().splitlines() or ['']
  return next((line for line in lines if re.search(pattern, line)), lines[0]).strip()
