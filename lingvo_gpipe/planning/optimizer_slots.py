"""What an optimizer keeps for each weight, found by asking it."""

import lingvo.compat as tf
from lingvo.core import py_utils
import numpy as np

from lingvo_gpipe import layer_graph

# Large enough for optimizers that keep rows and columns of large weights only.
_SHAPE = [256, 256]


def SlotsPerWeight(train):
  """How many numbers an optimizer keeps for each weight.

  Builds the optimizer's update of one weight in a scratch graph and counts the
  variables that appear: SGD has none, Momentum 1, Adam and RMSProp 2, Adafactor
  a small fraction. Averages of the weights (`ema_decay`) count as one.

  Args:
    train: A task's train params.

  Returns:
    A float; with several learners, that of the largest.
  """
  learners = train.learner or [train]
  if not isinstance(learners, (list, tuple)):
    learners = [learners]
  slots = max(
      layer_graph.Alone(lambda l=l: _Count(l.optimizer)) for l in learners)
  return slots + (1. if train.ema_decay > 0 else 0.)


def _Count(optimizer):
  """Numbers that the optimizer of these params keeps, for each weight."""
  py_utils.GetOrCreateGlobalStepVar()
  w = tf.get_variable('w', _SHAPE)
  before = {v.name for v in tf.global_variables()}
  layer = optimizer.Copy().Set(name=optimizer.name or 'optimizer').Instantiate()
  layer.Apply(0.1, py_utils.NestedMap(w=py_utils.VarGrad(w, tf.ones(_SHAPE))))
  made = [v for v in tf.global_variables() if v.name not in before]
  # Step counters and the like don't grow with the weights.
  sizes = [v.shape.num_elements() for v in made if v.shape.num_elements() > 1]
  return sum(sizes) / np.prod(_SHAPE)
