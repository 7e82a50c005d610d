"""The 1F1B schedule: one loop, with the loss inside.

An iteration takes one micro-batch forward through all stages, its loss on the
last stage's device, and its gradients back:

    while t < M:
      x = inputs[t]
      for k in range(K): x[k + 1] = cell[k](theta[k], x[k])
      d = gradient(loss(x[K], targets[t]))
      for k in reversed(range(K)): d, d_theta[k] += gradients of cell[k], by d

Iterations overlap, but no more than `in_flight` of them. So a stage holds the
intermediate values of that many micro-batches at most, whatever their number,
though nothing is recomputed. (PipeDream-Flush, arXiv 2006.09503, section 2.2,
has such a schedule; here it is not laid out but follows from what depends on
what: a stage's forward passes are in order, and so are its backward passes.)
"""

import functools

import lingvo.compat as tf

from lingvo_gpipe import placement
from lingvo_gpipe.backward_pass import BackwardPass
from lingvo_gpipe.forward_pass import Visit
from lingvo_gpipe.loop_building import LoopBuilding


@LoopBuilding()
def OneForwardOneBackward(forward, layout, d_state1, in_flight, recompute):
  """Builds the loop.

  Args:
    forward: A ForwardPass of stages without recurrent state; the states of its
      last stage are the loss and the metrics.
    layout: How micro-batches lie in the inputs.
    d_state1: A function that gives the NestedMap of the gradients of the last
      stage's states, constants.
    in_flight: How many micro-batches are under way at most.
    recompute: `never`; `always`, and `except_last`, which is the same here:
      each stage but the last, whose gradient follows at once, runs its cell
      again; or `selective`.

  Returns:
    (NestedMap of the last stage's states in their layout, without a data edge
    from the loop; a StageGradients for each stage; the list of gradients of the
    inputs).
  """
  stages = forward.stages
  backward = BackwardPass(forward, layout, [[] for _ in stages])
  tokens = []
  for stage in stages:
    with tf.device(stage.device):
      tokens.append(tf.constant(0))

  def Body(i, carries, carry):
    indices = [c.index for c in carries]
    carries, visits = forward.Step(carries)
    seen = [lambda v=v: v for v in visits]
    if recompute != 'never':
      for k, (stage, visit) in enumerate(zip(stages[:-1], visits)):
        results = None
        if recompute == 'selective':
          results = stage.selection.Of(visit.products)
        seen[k] = functools.partial(_ToRunAgain, stage, visit, results)
    with tf.device(stages[-1].device):
      d = d_state1()
    return i + 1, carries, backward.Step(carry, indices, seen, d)

  i = placement.Counter(0, placement.HostOf(stages[0].device))
  with tf.device(None), tf.device(placement.BesideInput):
    _, carries, carry = tf.while_loop(
        lambda i, *_: i < layout.length, Body,
        [i, forward.Start(0), backward.Start(tokens)],
        parallel_iterations=in_flight, back_prop=False, name='one_f_one_b')
  _, detached, _, _ = forward.Finish(carries)
  return (detached,) + backward.Finish(carry)


def _ToRunAgain(stage, visit, results):
  """The Visit with its cell to be run again, from tensors of its own.

  Otherwise TensorFlow would find that the two runs are the same, and merge
  them.
  """
  state0, inputs = [
      m.Transform(tf.identity) for m in (visit.state0, visit.inputs)
  ]
  return Visit(stage.Weights(visit.theta), state0, inputs, results=results)
