"""How this package's while loops are built: in the graph itself, and without Python's garbage collector."""

import contextlib
import gc

from lingvo_gpipe import lingvo_compat


@contextlib.contextmanager
def LoopBuilding():
  """What is built inside is built so; also a decorator."""
  with lingvo_compat.GraphLoops(), _CollectorPaused():
    yield


@contextlib.contextmanager
def _CollectorPaused():
  """Python's cyclic garbage collector rests inside.

  A graph is some hundred thousand objects that stay; to walk them again and
  again, in search of cycles, took an eighth of the building of a ResNet-101.
  """
  was_enabled = gc.isenabled()
  gc.disable()
  try:
    yield
  finally:
    if was_enabled:
      gc.enable()
