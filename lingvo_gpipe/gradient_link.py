"""Hands TensorFlow our own gradient of the stages' weights and inputs.

`tf.custom_gradient` would do it with one op that takes every weight of every
stage, which brings them all to one device, each step. Here a chain of identity
ops does, one a stage, on the stage's device, linked by a scalar:

    weights, states, inputs of stage 0 -> identity 0 -> link -> identity 1 ...
    ... -> identity of the last stage, with the outputs -> outputs

`tf.gradients` comes to the last one first, with the gradients of the outputs.
All gradients are made there; each earlier identity hands over those of its own
stage as it is reached.
"""

import lingvo.compat as tf

from lingvo_gpipe.stage import Dense

_COLLECTION = 'lingvo_gpipe_gradient_links'
_GRADIENT = 'LingvoGpipeGradientLink'


@tf.RegisterGradient(_GRADIENT)
def _Gradient(op, *d_outputs):
  gradient = dict(op.graph.get_collection_ref(_COLLECTION))[op.name]
  # `colocate_gradients_with_ops` holds all ops made here on the device of `op`,
  # but they belong to every stage.
  with tf.get_default_graph().colocate_with(None, ignore_existing=True):
    return gradient(*d_outputs)


def Identity(tensors, gradient, name):
  """Identities of tensors, with `gradient` (a function of their gradients)."""
  graph = tf.get_default_graph()
  with graph.gradient_override_map({'IdentityN': _GRADIENT}):
    outputs = tf.identity_n(tensors, name=name)
  graph.get_collection_ref(_COLLECTION).append((outputs[0].op.name, gradient))
  return outputs


def Link(devices, xs, ys, finals, gradients):
  """Returns ys and finals, whose gradients are made by `gradients`.

  Args:
    devices: A device name for each stage.
    xs: For each stage, the list of tensors that want a gradient.
    ys: The differentiable outputs, tensors on the last device.
    finals: For each stage, a list of further outputs, on its device.
    gradients: A function (list of gradients of ys, list for each stage of
      gradients of finals) -> for each stage, the list of gradients of its xs
      (None for none). Called once for each `tf.gradients` that gets here.

  Returns:
    (ys, finals) with that gradient.
  """
  calls = _Calls(finals, len(ys), gradients)
  link = None
  for k, (device, tensors) in enumerate(zip(devices, xs)):
    last = k == len(devices) - 1
    with tf.device(device):
      link = tf.constant(0.) if link is None else link
      inputs = [link] + list(tensors) + (list(ys) if last else [])
      outputs = Identity(inputs, calls.OfStage(k, last), 'link')
    link = outputs[0]
  if ys:
    ys = outputs[-len(ys):]
  linked = []
  for k, (device, tensors) in enumerate(zip(devices, finals)):
    if tensors:
      with tf.device(device):
        _, *tensors = Identity([link] + tensors, calls.OfFinal(k), 'final')
    linked.append(list(tensors))
  return list(ys), linked


class _Calls:
  """The gradient functions of the identities, and what they pass on."""

  def __init__(self, finals, num_ys, gradients):
    self._finals = finals
    self._num_ys = num_ys
    self._make = gradients
    self._d_finals = {}
    self._d_xs = None

  def OfFinal(self, k):
    """The gradient function of stage k's final outputs."""

    def Gradient(d_link, *d_final):
      # Comes before the stages' identities, since those give the link.
      self._d_finals[k] = Dense(d_final)  # Who gathers from it gives slices.
      return [d_link] + [None] * len(d_final)

    return Gradient

  def OfStage(self, k, last):
    """The gradient function of stage k's identity."""

    def Gradient(d_link, *d_others):
      if last:
        d_finals = [
            self._d_finals.get(i) or [tf.zeros_like(x) for x in tensors]
            for i, tensors in enumerate(self._finals)
        ]
        self._d_finals = {}
        d_ys = Dense(d_others[len(d_others) - self._num_ys:])
        self._d_xs = self._make(d_ys, d_finals)
      d_xs = list(self._d_xs[k])
      return [d_link] + d_xs + [None] * (len(d_others) - len(d_xs))

    return Gradient
