"""Reads batches of an input generator as Lingvo's trainer does."""

import contextlib

import lingvo.compat as tf
from lingvo.core import cluster_factory
from lingvo.core import py_utils


class Stream:
  """The batches of an input generator, in a session."""

  def __init__(self, session, generator, batch):
    self._session, self.generator, self._batch = session, generator, batch
    generator.Initialize(session)

  def Next(self, n):
    return [self._session.run(self._batch) for _ in range(n)]

  def Rest(self):
    """All batches up to the end of the data."""
    batches = []
    try:
      while True:
        batches += self.Next(1)
    except tf.errors.OutOfRangeError:
      return batches

  def Reset(self):
    self.generator.Reset(self._session)


@contextlib.contextmanager
def Open(params, do_eval=False, global_step=0, trainer=(0, 1), graph_seed=None):
  """A Stream in a graph and a session of its own; each batch is a step.

  As Lingvo's trainer does it, the global step is restored after the input is
  initialised.

  Args:
    params: The input generator's.
    do_eval: Whether to evaluate.
    global_step: The step to resume from.
    trainer: (this trainer's number, the number of trainers).
    graph_seed: The graph's random seed.

  Yields:
    The Stream.
  """
  cluster = cluster_factory.Current().params.Copy().Set(do_eval=do_eval)
  if trainer != (0, 1):
    cluster.Set(mode='async', job='trainer', task=trainer[0])
    cluster.worker.replicas = trainer[1]
  graph = tf.Graph()
  graph.seed = graph_seed
  with graph.as_default(), cluster.Instantiate():
    step = py_utils.GetOrCreateGlobalStepVar()
    generator = params.Instantiate()
    batch = generator.GetPreprocessedInputBatch()
    with tf.control_dependencies(batch.Flatten()):
      count = tf.no_op() if do_eval else tf.assign_add(step, 1).op
    with tf.control_dependencies([count]):
      counted = batch.Transform(tf.identity)
    init = tf.global_variables_initializer()
    start = tf.assign(step, global_step)
    with tf.Session(graph=graph) as session:
      session.run(init)
      stream = Stream(session, generator, counted)
      session.run(start)
      yield stream
