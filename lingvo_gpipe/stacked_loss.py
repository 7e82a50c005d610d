"""StackedLoss: the loss of cells on many devices, and its gradient, in one loop.

What StackedRecurrent is to fill_drain.py, this is to one_f_one_b.py.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import gradient_link
from lingvo_gpipe import one_f_one_b
from lingvo_gpipe import slices
from lingvo_gpipe import stacked_recurrent
from lingvo_gpipe.backward_pass import Found
from lingvo_gpipe.backward_pass import Wanted
from lingvo_gpipe.forward_pass import ForwardPass
from lingvo_gpipe.loop_building import LoopBuilding
from lingvo_gpipe.stage import CurrentStepSeed


@LoopBuilding()
def StackedLoss(devices, cell_fns, thetas, inputs, layout, targets, loss,
                accumulator_layers, recompute, in_flight, names):
  """Computes metrics of the last of a stack of cells' outputs.

  The gradient of the loss is taken in the same loop, so it is there whether
  anybody asks for it or not; TensorFlow drops what nobody wants.

  Args:
    devices: A list of K TensorFlow device names.
    cell_fns: A list of K cell functions without state, as in StackedRecurrent.
    thetas: A list of K NestedMaps, the weights.
    inputs: NestedMap of tensors that lie in `layout`, on the first device.
    layout: slices.Stacked or slices.Rows.
    targets: NestedMap of such tensors, on the last device.
    loss: A loss.Loss.
    accumulator_layers: A list of K layers whose accumulators travel round the
      loop.
    recompute: See OneForwardOneBackward.
    in_flight: Likewise.
    names: What errors call the cells. A list of K.

  Returns:
    {name: (value, weight)}, float32 scalars. Only `loss` has a gradient.

  Raises:
    ValueError: a cell can't be pipelined (Stage.Trace), or a weight depends on
      the outputs (Loss.Totals).
  """
  last = devices[-1]
  thetas = thetas[:-1] + [py_utils.NestedMap(cell=thetas[-1], loss=loss.theta)]
  cell_fns = cell_fns[:-1] + [loss.CellFn(cell_fns[-1])]
  stages = stacked_recurrent.Stages(
      devices, cell_fns, None, None, None, thetas,
      [py_utils.NestedMap() for _ in devices], accumulator_layers, names)
  with tf.name_scope('stacked_loss'), stacked_recurrent.KeepCollections():
    seed = CurrentStepSeed()
    targets_spec = targets.Transform(
        lambda x: tf.TensorSpec(layout.SliceShape(x.shape), x.dtype))
    stacked_recurrent.TraceStages(
        stages, inputs, layout,
        py_utils.NestedMap(targets=targets_spec, totals=loss.TotalsSpec()))
    with tf.device(last):
      targets = slices.Readable(targets, layout)
      totals = loss.Totals(targets, layout)
    forward = ForwardPass(
        stages, inputs, layout, seed, out_layout=slices.Stacked(layout.length),
        aside=lambda t: py_utils.NestedMap(
            targets=targets.Read(t), totals=totals.Transform(tf.identity)))
    parts, grads, d_inputs = one_f_one_b.OneForwardOneBackward(
        forward, layout, loss.DState1, in_flight, recompute)
    found = Found(stages, forward.inputs, grads, d_inputs)

    def Gradients(d_loss, unused_d_finals):
      with tf.device(last):
        factor = loss.Unscaled(d_loss[0])
      scaled = []
      for stage, grads in zip(stages, found):
        with tf.device(stage.device):
          scale = tf.identity(factor)
          scaled.append([d if d is None else d * tf.cast(scale, d.dtype)
                         for d in grads])
      return scaled

    with tf.device(last):
      total = tf.reduce_sum(parts.loss)
    (total,), _ = gradient_link.Link(
        devices, Wanted(stages, forward.inputs), [total], [[] for _ in stages],
        Gradients)
    stacked_recurrent.LeaveStepSeed(seed)
    with tf.device(last):
      return loss.Added(total, parts)
