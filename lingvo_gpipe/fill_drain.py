"""The fill-drain schedule: a loop forward, and for the gradient one backward.

GPipe, figure 2c. How the second comes by the values it needs is a matter of the
recompute mode:

  always: it runs each cell again from its boundary activation.
  except_last: not for the last micro-batch, whose gradient comes first. That
    micro-batch goes through the stages after the loop, by itself.
  selective: the results of products with weights are kept, and the rest of the
    cell is run again (kept_results.py).
  never: there is no second loop of ours. TensorFlow takes the gradient of the
    first and keeps all intermediate values.
"""

import functools

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import placement
from lingvo_gpipe import slices
from lingvo_gpipe.backward_pass import BackwardPass
from lingvo_gpipe.loop_building import LoopBuilding
from lingvo_gpipe.stage import AmongNones

RECOMPUTE_MODES = ('always', 'except_last', 'selective', 'never')


def ToKeep(recompute):
  """What a ForwardPass keeps in this mode; its argument of that name."""
  if recompute == 'never':
    return ()
  keep = ('inputs', 'states', 'extras')
  return keep + ('results',) if recompute == 'selective' else keep


class FillDrain:
  """The two loops."""

  def __init__(self, forward, layout, begin, limit, recompute,
               swap_memory=False):
    """Constructor.

    Args:
      forward: A ForwardPass with keep=ToKeep(recompute).
      layout: How micro-batches lie in inputs and outputs.
      begin: The first micro-batch, an int or int32 scalar.
      limit: One past the last micro-batch, likewise.
      recompute: One of RECOMPUTE_MODES.
      swap_memory: Whether values that `never` keeps on a GPU wait in host
        memory.
    """
    self._forward = forward
    self._stages = forward.stages
    self._layout = layout
    self._begin = begin
    self._recompute = recompute
    self._swap_memory = swap_memory
    self._alone = None  # The Visits of the micro-batch after the loop.
    self._limit = limit
    if recompute == 'except_last':
      with tf.device(placement.HostOf(self._stages[0].device)):
        self._limit = limit - 1
    self._kept = None

  @LoopBuilding()
  def Forward(self):
    """Builds the forward loop.

    Returns:
      (NestedMap of the last stage's states in the layout, the same without a
      data edge from the loop, the list of final states).
    """
    i = placement.Counter(self._begin,
                          placement.HostOf(self._stages[0].device))
    carries = self._forward.Start(self._begin)
    with tf.device(None), tf.device(placement.BesideInput):
      _, carries = tf.while_loop(
          lambda i, _: i < self._limit,
          lambda i, carries: (i + 1, self._forward.Step(carries)[0]),
          [i, carries],
          parallel_iterations=self._layout.most,
          back_prop=self._recompute == 'never',
          swap_memory=self._swap_memory, name='forward')
    if self._recompute == 'except_last':
      carries, self._alone = self._forward.Step(carries)
    states, detached, finals, self._kept = self._forward.Finish(carries)
    return states, detached, finals

  @LoopBuilding()
  def Backward(self, d_outputs, d_finals):
    """Builds the backward loop; not for `never`.

    Args:
      d_outputs: The gradients of the joined states; a list after Flatten(),
        None for what isn't differentiable.
      d_finals: For each stage, a list of gradients of its final state.

    Returns:
      (a StageGradients for each stage, the list of gradients of the inputs).
    """
    stages = self._stages
    with tf.device(stages[-1].device):
      d_out = slices.Readable(
          py_utils.NestedMap(floats=[d for d in d_outputs if d is not None]),
          self._layout)
    backward = BackwardPass(self._forward, self._layout, d_finals)
    carry = backward.Start([k.done for k in self._kept])

    def Step(carry, indices, visits):
      with tf.device(stages[-1].device):
        d_state1 = AmongNones(
            stages[-1].state1_spec, d_out.Read(indices[-1]).floats)
      return backward.Step(carry, indices, visits, d_state1)

    def Body(i, indices, carry):
      visits = [
          functools.partial(k.Visit, t) for k, t in zip(self._kept, indices)
      ]
      carry = Step(carry, indices, visits)
      return i - 1, [t - 1 for t in indices], carry

    if self._alone is not None:
      carry = Step(carry, self._Indices(self._limit),
                   [lambda v=v: v for v in self._alone])
    i = placement.Counter(self._limit - 1, placement.HostOf(stages[-1].device))
    with tf.device(None), tf.device(placement.BesideInput):
      _, _, carry = tf.while_loop(
          lambda i, *_: i >= self._begin, Body,
          [i, self._Indices(self._limit - 1), carry],
          parallel_iterations=self._layout.most, back_prop=False,
          name='backward')
    return backward.Finish(carry)

  @LoopBuilding()
  def StoredGradients(self, ys, d_ys, xs):
    """Takes the gradients of the forward loop from what it kept; for `never`.

    Args:
      ys: The loop's differentiable outputs.
      d_ys: Their gradients.
      xs: For each stage, the list of tensors that want a gradient.

    Returns:
      For each stage, the list of gradients of its xs. A tensor that several
      stages use has its whole gradient at the first of them, None at the
      others.
    """
    unique = {}
    for x in sum(xs, []):
      unique.setdefault(id(x), x)
    order, zeros = self._forward.order, []
    for token in order:
      with tf.device(token.device):
        zeros.append(tf.zeros_like(token))
    with tf.device(None), tf.device(placement.BesideInput):
      grads = tf.gradients(
          ys + order, list(unique.values()), d_ys + zeros,
          colocate_gradients_with_ops=True,
          stop_gradients=list(unique.values()))
    grads = dict(zip(unique, grads))
    return [[grads.pop(id(x), None) for x in tensors] for tensors in xs]

  def _Indices(self, t):
    """The number of a micro-batch, beside each stage."""
    return [placement.Counter(t, stage.device) for stage in self._stages]
