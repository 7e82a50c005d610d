"""What a device holds during a training step, from its layers' costs."""

import collections

import numpy as np

from lingvo_gpipe import best_cut

# Bytes on a device: of the weights, the sums of their gradients, what the
# optimizer keeps for them, and activations with their gradients.
Memory = collections.namedtuple(
    'Memory', ['weights', 'gradients', 'slots', 'activations'])


class StageMemory:
  """The memory of any stage of some layers, for one recompute mode.

  A stage holds for each micro-batch in flight what it needs to take its
  gradient: its input and, depending on the mode, all or some results. While it
  takes the gradient of one micro-batch, there is also what its layers compute
  again and need for the time being.
  """

  def __init__(self, costs, mode, slots, in_flight, joined):
    """Constructor.

    Args:
      costs: A cost_model.LayerCost of each layer.
      mode: One of fill_drain.RECOMPUTE_MODES.
      slots: How many numbers the optimizer keeps for a weight.
      in_flight: For each stage, how many micro-batches it holds at a time.
      joined: How many micro-batches the outputs are joined of; 0 where the loss
        is inside the loop.
    """
    self._slots = slots
    self._in_flight = in_flight
    self._inputs = np.append(_Array(costs, lambda c: c.input_bytes), 0.)
    self._weights = _Sums(costs, lambda c: c.param_bytes)
    self._held = _Sums(costs, _HELD[mode])
    self._keeps_inputs = mode != 'never'
    # The last stage's outputs, all of them, and their gradients.
    self._outputs = 2. * joined * costs[-1].output_bytes
    kept = _Sums(costs, lambda c: c.kept_bytes)
    peak = _Array(costs, lambda c: c.peak_bytes)
    if mode == 'never':  # What is kept is counted as held.
      kept = np.zeros_like(kept)
      peak = peak - _Array(costs, lambda c: c.kept_bytes)
    # While the gradient passes layer i, what the layers before it keep is there.
    self._before = kept
    self._peaks = _RangeMaximum(kept[:-1] + peak)

  def Limited(self, limits):
    """What stages need, for those who cut: a best_cut.Memory.

    Args:
      limits: The bytes of each stage's device.
    """

    def Fixed(starts, ends):
      weights = self._weights[ends] - self._weights[starts]
      return weights * (2 + self._slots) + self._Passing(starts, ends)

    return best_cut.Memory(Fixed, self._Held, self._in_flight, limits)

  def Of(self, k, start, end):
    """The Memory of stage k, if it holds the layers start..end."""
    weights = self._weights[end] - self._weights[start]
    activations = (
        self._in_flight[k] * self._Held(start, end) + self._Passing(start, end))
    return Memory(weights, weights, weights * self._slots, float(activations))

  def _Held(self, starts, ends):
    """Activations for each micro-batch that the stages start..end hold."""
    held = self._held[ends] - self._held[starts]
    return held + self._inputs[starts] if self._keeps_inputs else held

  def _Passing(self, starts, ends):
    """Activations while the gradient passes, and the outputs."""
    one = self._peaks(starts, ends) - self._before[starts]
    return one + (ends == len(self._before) - 1) * self._outputs


# What a layer's stage holds of it for each micro-batch in flight, besides the
# stage's input. (except_last: the last micro-batch's results are there only
# while those of no other are computed again.)
_HELD = {
    'always': lambda c: 0,
    'never': lambda c: c.kept_bytes,
    'except_last': lambda c: 0,
    'selective': lambda c: c.product_bytes,
}


def _Array(costs, what):
  return np.array([what(c) for c in costs], np.float64)


def _Sums(costs, what):
  return np.concatenate([[0.], np.cumsum(_Array(costs, what))])


class _RangeMaximum:
  """(starts, ends) -> the largest of values[start:end], for arrays of them."""

  def __init__(self, values):
    rows = [values]
    while 2**len(rows) <= len(values):
      half = 2**(len(rows) - 1)
      row = rows[-1].copy()
      row[:-half] = np.maximum(rows[-1][:-half], rows[-1][half:])
      rows.append(row)
    self._rows = np.stack(rows)  # [i, j]: of values[j:j + 2^i].

  def __call__(self, starts, ends):
    level = np.log2(np.maximum(ends - starts, 1)).astype(int)
    # Of no values: whatever.
    starts = np.minimum(starts, self._rows.shape[1] - 1)
    return np.maximum(self._rows[level, starts],
                      self._rows[level, np.maximum(ends - 2**level, 0)])
