"""The trainer's steps a second beside those of its train op in a bare loop.

  python -m benchmarks.trainer_speed
  python -m benchmarks.trainer_speed --noreproducible

One process trains; between turns of its own loop it runs the same graph's train op by itself: in the trainer's session,
there with the metrics that the trainer asks for in each step, and in a session without the trainer's TensorFlow server.
Flags are the trainer's.
"""

import statistics
import sys
import tempfile
import time

import lingvo.compat as tf

from lingvo_gpipe import trainer
from lingvo_gpipe.launcher import manager
from lingvo_gpipe.launcher import runners

_FLAGS = [
    '--model=model_registry.image.resnet.ResNetDigits', '--num_stages=2', '--num_micro_batches=4',
    '--model_params_override=train.max_steps:1000000', '--noeval_at_end'
]
_ROUNDS = 12
_STEPS = 10


class _MeasuredTrainer(runners.Trainer):
  """The trainer, which ends after so many rounds."""

  def __init__(self, *args, **kwargs):
    super().__init__(*args, **kwargs)
    with self._graph.as_default():
      self._initialize_all = tf.global_variables_initializer()
    self._bare_session = None
    self._turn = None  # (time, number of steps) when the trainer's turn began.
    self._steps = 0
    self._times = {'trainer': []}

  def _ShouldStop(self, sess=None, step=None, check_early_stop=True):
    stop = super()._ShouldStop(sess, step, check_early_stop)
    if sess is None:
      return stop
    if self._bare_session is None:
      self._bare_session = self._BareSession()
    # The first two steps prepare the graphs.
    self._steps += 1
    if self._turn is None:
      if self._steps > 2:
        self._turn = time.perf_counter(), self._steps
    elif self._steps - self._turn[1] == _STEPS:
      self._Round(sess)
    return stop or len(self._times['trainer']) == _ROUNDS

  def _BareSession(self):
    target, self._tf_master = self._tf_master, ''
    session = self._GetSession()
    self._tf_master = target
    session.run(self._initialize_all)
    for task in self._model.tasks:
      task.input.Initialize(session)
    return session

  def _Round(self, sess):
    """Ends a turn of the trainer's and gives the others theirs."""
    self._times['trainer'].append((time.perf_counter() - self._turn[0]) / _STEPS)
    task = self._model.GetTask()
    for name, session, fetches in [
        ('train op', sess, task.train_op),
        ('train op and metrics', sess, [task.train_op, task.eval_metrics]),
        ('train op, own session', self._bare_session, task.train_op),
    ]:
      session.run(fetches)
      start = time.perf_counter()
      for _ in range(_STEPS):
        session.run(fetches)
      self._times.setdefault(name, []).append((time.perf_counter() - start) / _STEPS)
    if len(self._times['trainer']) == _ROUNDS:
      self._Report()
    self._turn = time.perf_counter(), self._steps

  def _Report(self):
    own = self._times['trainer']
    for name, times in self._times.items():
      ratio = statistics.median(t / o for t, o in zip(times, own))
      print(f'{name:30} {1 / statistics.median(times):6.2f} steps/s; the trainer has {ratio:.3f} of its speed')


class _Manager(manager.RunnerManager):

  @property
  def Trainer(self):
    return _MeasuredTrainer


if __name__ == '__main__':
  manager.RunnerManager = _Manager
  with tempfile.TemporaryDirectory() as folder:
    sys.argv[1:1] = _FLAGS + [f'--logdir={folder}']
    trainer.main_cli()
