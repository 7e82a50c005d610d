"""Keeps in order the gradients that TensorFlow itself takes of the forward loop.

Without recomputation there is no backward loop of ours, and in TensorFlow's a
stage would begin each micro-batch as its gradient arrives, many at once. So a
scalar goes through the forward loop with each stage, whose gradient is a token
that comes back through all micro-batches, the last first:

    inputs, weights, token -> Begin -> cell -> End -> outputs, token

Going back, End holds the gradient of the outputs until the token has come from
the micro-batch after, and Begin lets it go on once this one's are done.
"""

import lingvo.compat as tf

from lingvo_gpipe import gradient_link


def Begin(device, waited_for, token):
  """What goes into a cell.

  Args:
    device: The stage's device name.
    waited_for: Tensors whose gradients must be there before the stage may take
      those of the micro-batch before this.
    token: float32 scalar.

  Returns:
    (the tensors, the token).
  """

  def Gradient(*grads):
    with tf.device(device), tf.control_dependencies(
        [d for d in grads[:-1] if d is not None]):
      return list(grads[:-1]) + [tf.identity(grads[-1])]

  *tensors, token = gradient_link.Identity(
      list(waited_for) + [token], Gradient, 'begin')
  return tensors, token


def End(device, outputs, token):
  """What comes out of a cell; its gradients wait for the token's.

  Args:
    device: The stage's device name.
    outputs: Tensors.
    token: float32 scalar.

  Returns:
    (the tensors, the token).
  """

  def Gradient(*grads):
    with tf.device(device), tf.control_dependencies([grads[-1]]):
      return [None if d is None else tf.identity(d) for d in grads]

  *tensors, token = gradient_link.Identity(
      list(outputs) + [token], Gradient, 'end')
  return tensors, token
