"""StackedRecurrent: recurrent layers on many devices, as one while loop.

The loop is forward_loop.py's, its gradient recompute.py's: a second such loop
in reverse order.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import forward_loop
from lingvo_gpipe import gradient_link
from lingvo_gpipe import lingvo_compat
from lingvo_gpipe import placement
from lingvo_gpipe import recompute as recompute_lib
from lingvo_gpipe import slices
from lingvo_gpipe.stage import CurrentStepSeed
from lingvo_gpipe.stage import Differentiable
from lingvo_gpipe.stage import Stage

# `always`: the gradient runs each cell again from its boundary activation.
# `never`: the forward loop keeps all intermediate values, as TensorFlow does.
RECOMPUTE_MODES = ('always', 'never')


@lingvo_compat.GraphLoops()
def StackedRecurrent(devices,
                     cell_fns,
                     cell_grads,
                     cell_outs,
                     cell_out_grads,
                     thetas,
                     init_states,
                     inputs,
                     accumulator_layers=None,
                     unused_acc_state=False,
                     recompute='always',
                     first_micro_batch_id=None,
                     layout=None,
                     zeros_for_unused=True,
                     names=None):
  """Computes stacked recurrent layers, each on its device.

  Signature and meaning are those of lingvo.core.recurrent.StackedRecurrent:

    for each layer:
      with tf.device(device):
        states, final_state = Recurrent(theta, state0, inputs, cell_fn)
        inputs = cell_out(states)
    return inputs, final_states

  computed at once for all layers, time step by time step.

  Args:
    devices: A list of K TensorFlow device names.
    cell_fns: A cell function, or a list of K: (theta, state0, inputs) ->
      (state1, extras), all NestedMaps of tensors.
    cell_grads: Gradient functions in place of TensorFlow's own, or None:
      (theta, state0, inputs, extras, dstate1) -> (dtheta, dstate0, dinputs,
      dcaptures). One, or a list of K.
    cell_outs: state1 -> the next layer's inputs. One, or a list of K.
    cell_out_grads: The gradient of the next layer's inputs -> that of state1.
      One, or a list of K.
    thetas: A list of K NestedMaps, the weights.
    init_states: A list of K NestedMaps, the states before the first step. With
      an empty one the layer keeps no state: state1 is merely its output.
    inputs: NestedMap of tensors [time, ...]. If it has `padding`, steps at
      either end that are padding throughout are left out; their outputs are 0.
    accumulator_layers: Layers whose accumulators travel round the loop, or
      None. A list of K.
    unused_acc_state: Whether no cell reads its state0. States are then neither
      kept for the gradient nor given to the cells.
    recompute: One of RECOMPUTE_MODES. With a cell_grad it is `always`.
    first_micro_batch_id: int64 scalar. If given, random ops of time step t see
      first_micro_batch_id + t as the global step.
    layout: How the time steps lie in the inputs and outputs: slices.Stacked or
      slices.Rows. None: [time, ...].
    zeros_for_unused: Whether the gradient of a weight, state or input that does
      not affect the outputs is zeros, as in Lingvo, or None, as in TensorFlow.
    names: What errors call the layers. A list of K, or None.

  Returns:
    (outputs, final_states): cell_out of the last layer's states [time, ...],
    and a list of K NestedMaps.

  Raises:
    TypeError: an argument isn't of the type above.
    ValueError: lists of different lengths, an unknown recompute mode, or a
      cell that can't be pipelined (Stage.Trace).
  """
  stages = _Stages(devices, cell_fns, cell_grads, cell_outs, cell_out_grads,
                   thetas, init_states, accumulator_layers, names)
  if not isinstance(inputs, py_utils.NestedMap) or not inputs.Flatten():
    raise TypeError(
        'inputs must be a NestedMap with at least one tensor, but is '
        f'{type(inputs).__name__} {inputs!r}.')
  if recompute not in RECOMPUTE_MODES:
    raise ValueError(
        f'recompute is {recompute!r}; it must be one of '
        f'{", ".join(RECOMPUTE_MODES)}.')
  if any(s.cell_grad is not None for s in stages):
    recompute = 'always'
  if layout is None:
    with tf.device(devices[0]):
      layout = slices.Stacked(py_utils.GetShape(inputs.Flatten()[0])[0])
  spec = inputs.Transform(
      lambda x: tf.TensorSpec(layout.SliceShape(x.shape), x.dtype))
  with tf.name_scope('stacked_recurrent'), _KeepCollections():
    for stage in stages:
      stage.Trace(spec)
      spec = stage.out_spec
    seed = CurrentStepSeed()
    loop = forward_loop.ForwardLoop(stages, inputs, layout, seed,
                                    first_micro_batch_id, unused_acc_state,
                                    recompute)
    states, finals = _Link(loop, *loop.Run(), recompute, zeros_for_unused)
    py_utils.ResetStepSeed(
        seed + py_utils.GenerateSeedFromName('after_stacked_recurrent'))
    with tf.device(devices[-1]):
      return stages[-1].cell_out(states), finals


def _Stages(devices, cell_fns, cell_grads, cell_outs, cell_out_grads, thetas,
            init_states, accumulator_layers, names):
  """The arguments of StackedRecurrent as Stages."""
  num = len(devices)
  if not num:
    raise ValueError('devices is empty; there must be one for each layer.')
  names = names or [f'layer {i}' for i in range(num)]

  def Each(arg, values):
    if not isinstance(values, (list, tuple)):
      return [values] * num
    if len(values) != num:
      raise ValueError(
          f'{arg} has {len(values)} entries for {num} devices; there must be '
          'one for each.')
    return values

  def EachMap(arg, values):
    for i, value in enumerate(Each(arg, values)):
      if not isinstance(value, py_utils.NestedMap):
        raise TypeError(
            f'{arg}[{i}] must be a NestedMap, but is {type(value).__name__}.')
    return values

  rows = zip(
      names, devices, Each('cell_fns', cell_fns), EachMap('thetas', thetas),
      EachMap('init_states', init_states), Each('cell_grads', cell_grads),
      Each('cell_outs', cell_outs), Each('cell_out_grads', cell_out_grads),
      Each('accumulator_layers', accumulator_layers))
  stages = []
  for (name, device, cell_fn, theta, state0, cell_grad, cell_out, cell_out_grad,
       accumulators) in rows:
    with tf.device(device):
      # Tensors of the stage's own: where two stages share a weight, each gives
      # its part of the gradient.
      theta, state0 = [
          m.Transform(lambda x, d=device: tf.identity(placement.AtHome(x, d)))
          for m in (theta, state0)
      ]
    stages.append(
        Stage(name, device, cell_fn, theta, state0, cell_grad, cell_out,
              cell_out_grad, accumulators))
  return stages


class _KeepCollections:
  """What cells add to the graph's collections inside is dropped.

  Summaries, update ops and losses made in a loop's body can't be fetched from
  outside of it.
  """

  def __enter__(self):
    graph = tf.get_default_graph()
    self._before = {
        key: len(graph.get_collection_ref(key))
        for key in graph.get_all_collection_keys()
    }

  def __exit__(self, *unused):
    graph = tf.get_default_graph()
    for key in graph.get_all_collection_keys():
      items = graph.get_collection_ref(key)
      start = self._before.get(key, 0)
      items[start:] = [
          x for x in items[start:]
          if not isinstance(x, (tf.Tensor, tf.Operation))
      ]


def _Link(loop, states, detached, finals, recompute, zeros_for_unused):
  """Gives the loop's outputs their gradient.

  Args:
    loop: The ForwardLoop, after Run.
    states: NestedMap of its outputs.
    detached: The same, without a data edge from the loop.
    finals: A list of NestedMaps, the final states.
    recompute: `always` or `never`.
    zeros_for_unused: As in StackedRecurrent.

  Returns:
    (outputs, final states) with that gradient.
  """
  stages = loop.stages
  xs = [_Floats(s.theta) + _Floats(s.state0) + s.captures for s in stages]
  xs[0] += _Floats(loop.inputs)

  def Recomputed(d_states, d_finals):
    grads, d_inputs = recompute_lib.BackwardLoop(
        stages, loop.kept, loop.begin, loop.limit, loop.layout,
        _Refill(states, d_states), list(map(_Refill, finals, d_finals)))
    found = [
        _Pick(s.theta, g.theta) + _Pick(s.state0, g.state0) + g.captures
        for s, g in zip(stages, grads)
    ]
    found[0] += _Pick(loop.inputs, d_inputs)
    return found

  def Stored(d_states, d_finals):
    ys = _Floats(states) + sum(map(_Floats, finals), [])
    return recompute_lib.StoredGradients(
        ys, d_states + sum(d_finals, []), xs)

  def Gradients(d_states, d_finals):
    make = Recomputed if recompute == 'always' else Stored
    found = make(d_states, d_finals)
    if zeros_for_unused:
      found = [[tf.zeros_like(x) if d is None else d for x, d in zip(*pair)]
               for pair in zip(xs, found)]
    return found

  ys, linked = gradient_link.Link([s.device for s in stages], xs,
                                  _Floats(detached),
                                  [_Floats(f) for f in finals], Gradients)
  return (_Replace(detached, ys),
          [_Replace(f, l) for f, l in zip(finals, linked)])


def _Floats(nmap):
  """The differentiable tensors of a NestedMap, a list."""
  return [x for x in nmap.Flatten() if Differentiable(x)]


def _Pick(nmap, grads):
  """Of grads, a list after nmap.Flatten(), those of differentiable tensors."""
  return [d for x, d in zip(nmap.Flatten(), grads) if Differentiable(x)]


def _Replace(nmap, floats):
  """nmap with its differentiable tensors replaced by floats."""
  floats = iter(floats)
  return nmap.Pack(
      [next(floats) if Differentiable(x) else x for x in nmap.Flatten()])


def _Refill(nmap, floats):
  """The inverse of _Pick: None for what isn't differentiable."""
  floats = iter(floats)
  return [next(floats) if Differentiable(x) else None for x in nmap.Flatten()]
