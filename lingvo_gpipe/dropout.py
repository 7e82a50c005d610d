"""Dropout that draws the same mask when it is recomputed.

Lingvo's DropoutLayer and attention draw from a stateful op by default. In a
pipeline they are switched to the deterministic kind, seeded by the layer's name
and the micro-batch (feature_extraction.py, micro_batch.py).
"""

from lingvo.core import layers


def Adopt(layer):
  """Makes a layer's dropout deterministic; leaves other layers as they are.

  Args:
    layer: A layer, already created. Its children aren't looked at.
  """
  if type(layer) is layers.DropoutLayer:  # pylint: disable=unidiomatic-typecheck
    layer.__class__ = layers.DeterministicDropoutLayer
  if 'atten_dropout_deterministic' in layer.params:
    layer.params.atten_dropout_deterministic = True
