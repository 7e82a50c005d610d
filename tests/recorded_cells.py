"""Cells that write down when they run, to see what the loops make of them."""

import threading
import time

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import stacked_recurrent


class Recorder:
  """What the stages of a stack did, in the order in which it began.

  Attributes:
    traces: For each stage, how often its cell was called to build the graph.
    work: For each stage, the list of what it ran: ('F', t) a forward pass of
      micro-batch t, first or again, ('B', t) a backward pass.
    overlaps: The pairs of works of one stage and kind that ran at once.
    before: {(stage, kind, t): a function to call as that work begins}.
  """

  def __init__(self, num_stages):
    self.traces = [0] * num_stages
    self.work = [[] for _ in range(num_stages)]
    self.overlaps = []
    self.before = {}
    self._running = []
    self._lock = threading.Lock()

  def Cells(self):
    """The cell functions."""
    return [self._Cell(k) for k in range(len(self.traces))]

  def _Cell(self, k):

    def Cell(theta, state0, inputs):
      del state0
      self.traces[k] += 1

      @tf.custom_gradient
      def Square(x):
        x = self._Record(k, 'F', inputs.id, x)

        def Grad(d):
          return self._Record(k, 'B', inputs.id, 2. * x * d)

        return x * x, Grad

      return py_utils.NestedMap(
          x=Square(inputs.x * theta.w), id=inputs.id), py_utils.NestedMap()

    return Cell

  def _Record(self, k, kind, t, x):

    def Run(t, x):
      t = int(t)
      with self._lock:
        self.work[k].append((kind, t))
        self.overlaps += [((k, kind, t), r) for r in self._running
                          if r[:2] == (k, kind)]
        self._running.append((k, kind, t))
      self.before.get((k, kind, t), lambda: None)()
      time.sleep(.002)
      with self._lock:
        self._running.remove((k, kind, t))
      return x

    y = tf.numpy_function(Run, [t, x], x.dtype)
    y.set_shape(x.shape)
    return y


def Stack(devices, recorder, num_micro_batches, recompute):
  """(loss, gradients of the weights) of a StackedRecurrent of its cells."""
  k = len(recorder.traces)
  ws = [tf.constant(1.) for _ in range(k)]
  outputs, _ = stacked_recurrent.StackedRecurrent(
      devices=devices.Names(k), cell_fns=recorder.Cells(), cell_grads=None,
      cell_outs=None, cell_out_grads=None,
      thetas=[py_utils.NestedMap(w=w) for w in ws],
      init_states=[py_utils.NestedMap()] * k,
      inputs=py_utils.NestedMap(
          x=tf.ones([num_micro_batches, 2]),
          id=tf.range(num_micro_batches, dtype=tf.int64)),
      recompute=recompute)
  loss = tf.reduce_sum(outputs.x)
  return loss, tf.gradients(loss, ws)
