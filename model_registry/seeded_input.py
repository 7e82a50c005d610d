"""Input generators on tf.data, in an order that depends on the seed alone."""

import lingvo.compat as tf
from lingvo.core import base_input_generator
from lingvo.core import datasource
from lingvo.core import py_utils


class SeededDatasetSource(datasource.TFDatasetSource):
  """Batches of a SeededInput, in a fixed order.

  In training, batch n goes to step n, also where training resumes from a
  checkpoint. The step isn't known when the iterator is initialised, since
  Lingvo restores checkpoints later. So it is handed over with each call, in a
  variable that the data set reads when its first batch is asked for.
  """

  def __init__(self, params):
    super().__init__(params)
    self._global_step = None

  def GetDataset(self):
    if self._global_step is None:
      return self._input_generator.BuildDataset()
    return self._input_generator.BuildDatasetFrom(self._global_step)

  def _InitIterator(self):
    # As the parent's, which however lets tf.data give up the order for speed.
    if self.host_id in self._dataset:
      return
    if not self.do_eval and self._input_generator.params.skip_to_global_step:
      # Local: a checkpoint doesn't hold it.
      self._global_step = tf.Variable(
          0, trainable=False, dtype=tf.int64, name='input_global_step',
          collections=[tf.GraphKeys.LOCAL_VARIABLES])
    with py_utils.GlobalStepContext(None):
      dataset = self.GetDataset()
    self._dataset[self.host_id] = dataset
    if tf.executing_eagerly_outside_functions():
      self._iterator[self.host_id] = iter(dataset)
    else:
      self._iterator[self.host_id] = (
          tf.data.make_initializable_iterator(dataset))

  def Initialize(self, sess=None):
    if sess is not None and self._global_step is not None:
      sess.run(self._global_step.initializer)
    super().Initialize(sess)

  def GetNext(self):
    # A data set's function reads the variable only on its own device.
    with tf.device('/device:CPU:0'):
      with tf.init_scope():
        self._InitIterator()
      handed_over = []
      if self._global_step is not None:
        step = tf.cast(py_utils.GetGlobalStep(), tf.int64)
        handed_over = [tf.assign(self._global_step, step)]
      with tf.control_dependencies(handed_over):
        return super().GetNext()


class SeededInput(base_input_generator.BaseInputGenerator):
  """Base of the input generators: a subclass has a BuildDataset.

  Where several trainers share the work (--mode=async), each takes its share of
  the examples (`Share`).
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('skip_to_global_step', True, 'In training, whether to begin with '
             "the global step's batch, so that a resumed run sees what it would "
             'have seen uninterrupted.')
    p.file_datasource = SeededDatasetSource.Params()
    p.random_seed = 0
    p.resettable = True
    return p

  def BuildDataset(self):
    """Returns the tf.data.Dataset of batches; in training, an endless one."""
    raise NotImplementedError(type(self))

  def BuildDatasetFrom(self, global_step):
    """The batches of training from a step's on.

    Here those before it are made and thrown away.

    Args:
      global_step: An int64 variable, read when the first batch is asked for.

    Returns:
      A tf.data.Dataset.
    """

    def _Rest(_):
      _, count = self.Share()
      return self.BuildDataset().skip(global_step.read_value() // count)

    # Within a function, so that the variable is read with the first batch.
    return tf.data.Dataset.from_tensors(0).flat_map(_Rest).prefetch(
        tf.data.experimental.AUTOTUNE)

  def Share(self):
    """(this trainer's number, how many trainers have an input of their own)."""
    cluster = self.cluster.params
    if cluster.mode == 'async' and cluster.job == 'trainer':
      return cluster.task, cluster.worker.replicas
    return 0, 1

  def Reset(self, sess=None):
    """Starts from the first batch again."""
    self.datasource.Reset(sess)

  def SplitInputBatch(self, num_splits):
    """Returns a batch as num_splits equal ones, for as many replicas.

    Unlike Lingvo's, they have a static size, which a pipeline asks for.
    """
    batch = self.GetPreprocessedInputBatch()
    if num_splits == 1:
      return [batch]
    splits = [tf.split(x, num_splits) for x in batch.Flatten()]
    return [batch.Pack(list(part)) for part in zip(*splits)]
