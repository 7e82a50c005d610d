"""StackedRecurrent: recurrent layers on many devices, as one while loop.

The loop, and its gradient, a second such loop in reverse order, are those of
fill_drain.py; what a stage does in them is in forward_pass.py and
backward_pass.py.
"""

import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import fill_drain
from lingvo_gpipe import gradient_link
from lingvo_gpipe import placement
from lingvo_gpipe import slices
from lingvo_gpipe.backward_pass import Found
from lingvo_gpipe.backward_pass import Wanted
from lingvo_gpipe.fill_drain import RECOMPUTE_MODES
from lingvo_gpipe.forward_pass import ForwardPass
from lingvo_gpipe.loop_building import LoopBuilding
from lingvo_gpipe.stage import AmongNones
from lingvo_gpipe.stage import CurrentStepSeed
from lingvo_gpipe.stage import Floats
from lingvo_gpipe.stage import ReplaceFloats
from lingvo_gpipe.stage import Stage


@LoopBuilding()
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
                     swap_memory=False,
                     seed_by_layer=True,
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
    recompute: One of RECOMPUTE_MODES. With a cell_grad it is
      `always`, and so is `except_last` with a padding.
    swap_memory: Whether what `never` keeps on a GPU waits in host memory.
    seed_by_layer: Whether random ops differ by layer, of themselves, as they do
      by time step. If not, it is for the cells to see to that.
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
  stages = Stages(devices, cell_fns, cell_grads, cell_outs, cell_out_grads,
                  thetas, init_states, accumulator_layers, names)
  if not isinstance(inputs, py_utils.NestedMap) or not inputs.Flatten():
    raise TypeError(
        'inputs must be a NestedMap with at least one tensor, but is '
        f'{type(inputs).__name__} {inputs!r}.')
  if recompute not in RECOMPUTE_MODES:
    raise ValueError(
        f'recompute is {recompute!r}; it must be one of '
        f'{", ".join(RECOMPUTE_MODES)}.')
  padding = inputs.get('padding')
  if any(s.cell_grad is not None for s in stages) or (
      recompute == 'except_last' and padding is not None):
    recompute = 'always'
  with tf.device(devices[0]):
    if layout is None:
      layout = slices.Stacked(py_utils.GetShape(inputs.Flatten()[0])[0])
    begin, limit = 0, layout.length
    if padding is not None:
      begin, limit = _Unpadded(padding)
  with tf.name_scope('stacked_recurrent'), KeepCollections():
    seed = CurrentStepSeed()
    TraceStages(stages, inputs, layout)
    forward = ForwardPass(
        stages, inputs, layout, seed, seed_by_layer,
        unused_state=unused_acc_state, keep=fill_drain.ToKeep(recompute),
        ordered=recompute == 'never')
    loops = fill_drain.FillDrain(forward, layout, begin, limit, recompute,
                                 swap_memory)
    states, finals = _Link(loops, forward, recompute, zeros_for_unused)
    LeaveStepSeed(seed)
    with tf.device(devices[-1]):
      return stages[-1].cell_out(states), finals


def TraceStages(stages, inputs, layout, aside_spec=None):
  """Traces the stages one after another.

  Args:
    stages: The Stages.
    inputs: NestedMap of tensors that lie in `layout`.
    layout: Their layout.
    aside_spec: NestedMap of TensorSpecs of what the last stage gets besides
      (ForwardPass.aside), or None.
  """
  spec = inputs.Transform(
      lambda x: tf.TensorSpec(layout.SliceShape(x.shape), x.dtype))
  for stage in stages:
    if aside_spec is not None and stage is stages[-1]:
      spec = py_utils.NestedMap(x=spec, aside=aside_spec)
    stage.Trace(spec)
    spec = stage.out_spec


def LeaveStepSeed(seed):
  """Sets Lingvo's step seed for what comes after the stages."""
  py_utils.ResetStepSeed(
      seed + py_utils.GenerateSeedFromName('after_stacked_recurrent'))


def Stages(devices, cell_fns, cell_grads, cell_outs, cell_out_grads, thetas,
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
    values = Each(arg, values)
    for i, value in enumerate(values):
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


class KeepCollections:
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


def _Link(loops, forward, recompute, zeros_for_unused):
  """Builds the forward loop, whose outputs get their gradient from `loops`.

  Args:
    loops: A FillDrain.
    forward: Its ForwardPass.
    recompute: One of RECOMPUTE_MODES.
    zeros_for_unused: As in StackedRecurrent.

  Returns:
    (NestedMap of the last stage's states, the list of final states).
  """
  stages = forward.stages
  states, detached, finals = loops.Forward()
  xs = Wanted(stages, forward.inputs)

  def Recomputed(d_states, d_finals):
    grads, d_inputs = loops.Backward(
        AmongNones(states, d_states).Flatten(),
        [AmongNones(*pair).Flatten() for pair in zip(finals, d_finals)])
    return Found(stages, forward.inputs, grads, d_inputs)

  def Stored(d_states, d_finals):
    ys = Floats(states) + sum(map(Floats, finals), [])
    return loops.StoredGradients(ys, d_states + sum(d_finals, []), xs)

  def Gradients(d_states, d_finals):
    found = (Stored if recompute == 'never' else Recomputed)(d_states, d_finals)
    if zeros_for_unused:
      found = [[tf.zeros_like(x) if d is None else d for x, d in zip(*pair)]
               for pair in zip(xs, found)]
    return found

  ys, linked = gradient_link.Link([s.device for s in stages], xs,
                                  Floats(detached),
                                  [Floats(f) for f in finals], Gradients)
  return (ReplaceFloats(detached, ys),
          [ReplaceFloats(f, l) for f, l in zip(finals, linked)])


def _Unpadded(padding):
  """The steps that aren't padding throughout.

  Args:
    padding: [time, ...], bool or a number; 0 or False where there is data.

  Returns:
    (first, one past last) such step, int32 scalars; (time, time) if there is
    none.
  """
  data = tf.reduce_any(
      tf.equal(tf.cast(padding, tf.float32), 0.),
      axis=list(range(1, padding.shape.rank)))
  time = tf.shape(data)[0]
  steps = tf.cast(tf.where(data)[:, 0], tf.int32)
  first = tf.reduce_min(tf.concat([steps, [time]], 0))
  last = tf.reduce_max(tf.concat([steps, [first - 1]], 0))
  return first, last + 1
