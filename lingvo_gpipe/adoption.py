"""What a layer needs changed to run under micro-batches, however deep it lies."""

from lingvo.core import py_utils

from lingvo_gpipe import batch_norm
from lingvo_gpipe import dropout


def Adopt(layer):
  """Changes the layer and all layers below it, whoever created them.

  Args:
    layer: A layer, already created. See batch_norm.Adopt and dropout.Adopt.
  """
  batch_norm.Adopt(layer)
  dropout.Adopt(layer)
  for child in py_utils.Flatten(layer.children):
    Adopt(child)
