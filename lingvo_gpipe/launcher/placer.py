"""Places the operations that a pipeline's stages don't place themselves.

A stage creates its variables and computes under its own device. What remains (clipping, learning rates, optimizer
slots, the updates) has no device of its own; spread over devices in turn, as Lingvo does it, each gradient would cross
to another device and back. `StagePlacer` lets such an operation follow its data instead.
"""
import math

_VARIABLE_OPS = ('VarHandleOp', 'Variable', 'VariableV2', 'AutoReloadVariable')


def _Weight(tensor):
  """Returns how much it costs to move a tensor: its bytes, without end where the shape isn't known."""
  if tensor.dtype.base_dtype.name == 'resource':
    return math.inf  # A variable can't move at all.
  elements = tensor.shape.num_elements()
  return math.inf if elements is None else elements * tensor.dtype.base_dtype.size


class StagePlacer:
  """A device function for `tf.device`, for one graph.

  An operation with a device keeps it. One without takes the first of these that gives an answer:

  1. an operation inside a function: none, it runs where the function is called. A constant: none, TensorFlow puts it
     where it is used;
  2. a variable named below another one (`a/w/Adam`, or `scope/a/w/sum`, below `a/w`): that one's device, so that slots
     lie beside their variable however the optimizer creates them;
  3. the device of its heaviest input, the first of them where several are equally heavy; a variable's handle is
     heavier than any tensor. So `scale * gradient` stays with the gradient, on whichever side the scalar stands;
  4. the default device.
  """

  def __init__(self, default_device):
    """Constructor.

    Args:
      default_device: name of the device for operations that follow nothing; the first stage's.
    """
    self._default_device = default_device
    self._variable_devices = {}

  def DeviceFunction(self, op):
    """Returns the device name for `op`, a tf.Operation under construction."""
    device = op.device or self._Choose(op)
    if op.type in _VARIABLE_OPS:
      self._variable_devices[op.name] = device
    return device

  def _Choose(self, op):
    if op.graph.building_function or op.type == 'Const':
      return ''
    if op.type in _VARIABLE_OPS:
      return self._BesideItsVariable(op.name) or self._default_device
    placed = [x for x in op.inputs if x.op.device]
    if not placed:
      return self._default_device
    handles = [x for x in placed if x.dtype.base_dtype.name == 'resource']
    return (handles or [max(placed, key=_Weight)])[0].op.device

  def _BesideItsVariable(self, name):
    """Returns the device of the variable whose name is the longest part of `name`, short of its end; '' without one."""
    parts = name.split('/')
    for length in range(len(parts) - 1, 0, -1):
      # A short name may stand in the middle by chance; at the beginning it means the variable.
      for start in range(len(parts) - length if length > 1 else 1):
        device = self._variable_devices.get('/'.join(parts[start:start + length]))
        if device:
          return device
    return ''
