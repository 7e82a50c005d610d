"""How many parameters models have, without building all of them."""
import lingvo.compat as tf
from lingvo.core import layers
from lingvo.core import py_utils

from lingvo_gpipe import layer_graph
from lingvo_gpipe import layer_kinds
from lingvo_gpipe import partition
from lingvo_gpipe.launcher import pipelines


class ParameterCount:
  """Counts parameters.

  Of pipelined layers one of each kind is built, so that a model of thousands of layers takes no longer than one of a
  few, and nothing is allocated.
  """

  def __init__(self):
    self._kinds = layer_kinds.Kinds()

  def Of(self, task):
    """Returns how many weights a task has, trainable or not.

    Args:
      task: the params of a Lingvo task, with a pipeline or without. They are used up: the pipeline's layers are gone
        afterwards.

    Raises:
      whatever a layer raises that can't be built.
    """

    def Count():
      with py_utils.VariableCreatorScope(_Stand):
        return self._OfPipelines(task) + self._OfLayer(task.Set(input=None))

    return layer_graph.Alone(Count)

  def _OfPipelines(self, task):
    """Returns how many weights the pipelined layers have, and takes them out of the task."""
    total = 0
    for pipeline in pipelines.FindParams(task):
      if pipeline.layers:
        total += sum(map(self._OfLayer, partition.Flatten(pipeline.layers)))
        # What is left is alike in many models.
        nothing = layers.IdentityLayer.Params().Set(name='nothing')
        pipeline.Set(
            layers=[nothing], num_stages=1, partition='min_max', num_micro_batches=1, input_shapes=None,
            shared_weights={})
    return total

  def _OfLayer(self, params):
    count = self._kinds.Get(params)
    return self._kinds.Add(_Built(params), params) if count is None else count


def _Built(params):
  """Returns how many weights a layer of these params has, by building it in the current graph."""
  return sum(v.shape.num_elements() for v in layer_graph.Create(params).vars.Flatten())


def _Stand(next_creator, **kwargs):
  """Makes a placeholder in place of a variable: most of the time would go into the operators that initialise it."""
  del next_creator
  return tf.placeholder(kwargs['dtype'], kwargs['shape'])
