"""Layers in sequence: FeatureExtractionLayer, a stage; SeqLayer, the stages.

Drop-in for the classes of the same names in lingvo.core.gpipe.
"""

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import py_utils

from lingvo_gpipe import placement
from lingvo_gpipe.stage import CurrentStepSeed


def ToTuple(x):
  """x as a tuple: of one, if it isn't a list or tuple."""
  if isinstance(x, list):
    return tuple(x)
  return x if isinstance(x, tuple) else (x,)


class FeatureExtractionLayer(base_layer.BaseLayer):
  """Layers in sequence that can also pass activations along.

  The last `num_act_inputs` of the inputs bypass the layers and come out after
  their outputs, followed by the activations of the `act_fetch_layers`
  (lingvo.core.layers.FetchLayer), so that a later stage can use them: a skip
  connection that crosses stages.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('variable_name_prefix', '',
             'Put before the names of the sublayers, and so of their variables.')
    p.Define('sub', [], 'A list of params of the layers.')
    p.Define('num_act_inputs', 0,
             'How many of the inputs, the last ones, bypass the layers.')
    p.Define('num_act_outputs', 0,
             'How many activations come out after the outputs: num_act_inputs '
             'plus the number of act_fetch_layers.')
    p.Define('act_fetch_layers', [],
             'Names of the FetchLayers whose activations come out too.')
    p.Define(
        'variables_in_parent_scope', False,
        "Whether the sublayers' variables are named as if they stood in the "
        "parent's scope, without this layer's name. A pipeline sets it, so that "
        'the names do not depend on the number of stages.')
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    p.act_fetch_layers = p.act_fetch_layers or []
    self._CheckActivations()
    for sub in p.sub:
      if not sub.name:
        raise ValueError(
            f'{p.name}: a sublayer of class {sub.cls.__name__} has no name. Set '
            'p.name: it names the variables.')
      sub.name = p.variable_name_prefix + sub.name
    CheckNames(p.name, p.sub)
    for sub in p.sub:
      self.CreateChild(sub.name, sub)
    for name in p.act_fetch_layers:
      if name not in self.children:
        raise ValueError(
            f'{p.name}: act_fetch_layers names {name!r}, but the sublayers are '
            f'{", ".join(s.name for s in p.sub)}.')

  def _CheckActivations(self):
    p = self.params
    found = (p.num_act_inputs, p.num_act_outputs, len(p.act_fetch_layers))
    if min(found) < 0 or found[1] != found[0] + found[2]:
      raise ValueError(
          f'{p.name}: num_act_outputs is {found[1]}; it must be num_act_inputs, '
          f'{found[0]}, plus the number of act_fetch_layers, {found[2]}.')

  def _child_variable_scope_override(self):
    override = super()._child_variable_scope_override()
    p = self.params
    if p.variables_in_parent_scope:
      override.update({p.variable_name_prefix + s.name: [] for s in p.sub})
      override.update({s.name: [] for s in p.sub})
    return override

  def FProp(self, theta, *args):
    """Runs the layers.

    Args:
      theta: NestedMap of the weights.
      *args: The first layer's inputs, then `num_act_inputs` activations.

    Returns:
      What the last layer returns; a tuple with the activations behind it if
      there are any.

    Raises:
      ValueError: there are no inputs besides the activations.
    """
    p = self.params
    args, activations = self._SplitArgs(p, args)
    seed = CurrentStepSeed()
    for sub in p.sub:
      # Each layer's random ops depend on its name and not on what runs before
      # it in the same stage: the masks are the same for any partition.
      py_utils.ResetStepSeed(seed + py_utils.GenerateSeedFromName(sub.name))
      # Ops, and errors about them, show the layer's name.
      with tf.name_scope(py_utils.SanitizeScopeKey(sub.name)):
        args = self.children[sub.name].FProp(theta[sub.name], *ToTuple(args))
    py_utils.ResetStepSeed(seed)
    for name in p.act_fetch_layers:
      activation = self.children[name].activation
      if isinstance(activation, (tuple, list)):
        activation = activation[0]
      activations += (activation,)
    if not p.sub and len(args) == 1:
      args = args[0]
    return ToTuple(args) + activations if activations else args

  @classmethod
  def _SplitArgs(cls, p, args):
    """(the first layer's inputs, the activations), two tuples."""
    if len(args) <= p.num_act_inputs:
      raise ValueError(
          f'{p.name}: got {len(args)} inputs, of which num_act_inputs='
          f'{p.num_act_inputs} are activations; none is left for the layers.')
    first = len(args) - p.num_act_inputs
    return tuple(args[:first]), tuple(args[first:])

  @classmethod
  def FPropMeta(cls, p, *args):
    """The sum of the layers' flops, and the shapes that come out."""
    args, activations = cls._SplitArgs(p, args)
    total = 0
    fetched = {}
    for sub in p.sub:
      meta = sub.cls.FPropMeta(sub, *args)
      fetched[sub.name] = meta.out_shapes[0]
      total += meta.flops
      args = meta.out_shapes
    activations += tuple(fetched[name] for name in p.act_fetch_layers)
    return py_utils.NestedMap(flops=total, out_shapes=args + activations)


def CheckNames(owner, params):
  """Raises ValueError if two of the layers, a list of params, share a name."""
  seen = {}
  for i, p in enumerate(params):
    if p.name in seen:
      raise ValueError(
          f'{owner}: layers {seen[p.name]} and {i} are both named {p.name!r}, so '
          'their variables would collide. Give each layer a name of its own.')
    seen[p.name] = i


class SeqLayer(base_layer.BaseLayer):
  """Cells in sequence, each with its variables and computation on its device."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('before_tpl', [],
             "Params of layers that run before the cells, on the first cell's "
             'device.')
    p.Define('cell_tpl', [], 'Params of the cells, one a stage.')
    p.Define(
        'stage_devices', None,
        'A list of TensorFlow device names, one a cell (taken round and round '
        "if there are fewer). None: the devices of the cluster's model split.")
    return p

  def __init__(self, params):
    super().__init__(params)
    p = self.params
    p.cell_tpl = self._CellParams()
    if not p.cell_tpl:
      raise ValueError(f'{p.name}: cell_tpl is empty; there must be a cell.')
    CheckNames(p.name, list(p.before_tpl) + list(p.cell_tpl))
    self._NameVariables()
    # Variables are where the first replica has its stages.
    self._created_on = placement.StageDevices(
        p.stage_devices, self.cluster, len(p.cell_tpl))
    for l in p.before_tpl:
      with tf.device(self._devices[0]):
        self.CreateChild(l.name, l)
    for device, l in zip(self._devices, p.cell_tpl):
      with tf.device(device):
        self.CreateChild(l.name, l)
    self._before_layers = [(l.name, self.children[l.name]) for l in p.before_tpl]
    self._cells = [(l.name, self.children[l.name]) for l in p.cell_tpl]

  def _CellParams(self):
    """The params of the cells."""
    return self.params.cell_tpl

  def _NameVariables(self):
    """Keeps the cells' names out of their variables' names, where that can be.

    A checkpoint then loads into any number of stages. It can't where cells hold
    layers of the same name.
    """
    cells = [
        c for c in self.params.cell_tpl
        if issubclass(c.cls, FeatureExtractionLayer)
    ]
    names = [c.variable_name_prefix + s.name for c in cells for s in c.sub]
    names += [l.name for l in self.params.before_tpl]
    names += [c.name for c in self.params.cell_tpl if c not in cells]
    if len(set(names)) == len(names):
      for c in cells:
        c.variables_in_parent_scope = True

  def _child_variable_scope_override(self):
    override = super()._child_variable_scope_override()
    p = self.params
    override.update({l.name: [] for l in list(p.before_tpl) + list(p.cell_tpl)})
    return override

  @property
  def _devices(self):
    """The device name of each cell, in the model split that is being built."""
    p = self.params
    if p.stage_devices is None and self.cluster.params.split_id:
      return placement.StageDevices(None, self.cluster, len(p.cell_tpl))
    return self._created_on

  @property
  def stage_devices(self):
    """The device name of each cell, a list."""
    return list(self._devices)

  def FProp(self, theta, *args):
    """Runs the cells one after another, each on its device.

    Args:
      theta: NestedMap of the weights.
      *args: The first layer's inputs.

    Returns:
      What the last cell returns.
    """
    return self._RunInSequence(theta, self._RunBefore(theta, args))

  def _RunBefore(self, theta, args):
    """Runs before_tpl; returns the first cell's inputs, a tuple."""
    with tf.device(self._devices[0]):
      for name, layer in self._before_layers:
        args = layer.FProp(theta[name], *ToTuple(args))
    return ToTuple(args)

  def _RunInSequence(self, theta, args):
    """Runs the cells on the whole mini-batch; returns what the last one does."""
    for (name, cell), device in zip(self._cells, self._devices):
      with tf.device(device):
        args = self._RunCell(cell, theta[name], args)
    return args

  def _RunCell(self, cell, theta, args):
    """Runs a cell, whose random ops don't depend on the other cells.

    A FeatureExtractionLayer sees to that by its sublayers' names, unless
    another cell has the same ones.
    """
    seed = CurrentStepSeed()
    p = cell.params
    if 'variables_in_parent_scope' not in p or not p.variables_in_parent_scope:
      py_utils.ResetStepSeed(seed + py_utils.GenerateSeedFromName(p.name))
    outputs = cell.FProp(theta, *ToTuple(args))
    py_utils.ResetStepSeed(seed)
    return outputs
