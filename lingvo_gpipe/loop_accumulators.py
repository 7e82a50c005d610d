"""A layer's accumulators, whose values travel round a loop of micro-batches."""

import lingvo.compat as tf
from lingvo.core import bn_layers


class LoopAccumulators:
  """Those of one stage.

  Sums (Lingvo's AddingAccumulator) begin at zero, and what was there is added
  after the loop. So the loop of a second replica, which has its own devices,
  doesn't wait for the first one's. Others go on from where they were.
  """

  def __init__(self, layer):
    """Constructor.

    Args:
      layer: The layer, or None for no accumulators.
    """
    self._accumulators = [] if layer is None else layer.accumulators.Flatten()
    self._before = {}

  def Start(self):
    """The values before the loop, a list."""
    values = []
    for a in self._accumulators:
      value = a.GetValue()
      was_set = value is a.GetValue()  # A default is made anew for each call.
      if was_set and isinstance(a, bn_layers.AddingAccumulator):
        self._before[a] = value
        value = a.DefaultValue()
      values.append(tf.identity(value))
    return values

  def Enter(self, values):
    """In the loop's body, sets the values that come round."""
    for a, value in zip(self._accumulators, values):
      a.SetValue(value)

  def Leave(self):
    """The values to carry on, a list; none stays behind in the layer."""
    values = [a.GetValue() for a in self._accumulators]
    for a in self._accumulators:
      a.Reset()
    return values

  def Finish(self, values):
    """Sets the values that come out of the loop; they get no gradient."""
    for a, value in zip(self._accumulators, values):
      value = tf.stop_gradient(value)
      before = self._before.pop(a, None)
      a.SetValue(value if before is None else before + value)
