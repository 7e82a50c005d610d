"""How loops are built."""

import gc
import sys

import lingvo.compat as tf
import pytest

from lingvo_gpipe.loop_building import LoopBuilding


@pytest.mark.parametrize('enabled', [True, False])
def testTheCollectorIsAsItWasAfterwards(enabled):
  before = gc.isenabled()
  (gc.enable if enabled else gc.disable)()
  try:
    with LoopBuilding():
      with LoopBuilding():
        assert not gc.isenabled()
      assert not gc.isenabled()
    assert gc.isenabled() == enabled
    with pytest.raises(KeyError):
      with LoopBuilding():
        raise KeyError
    assert gc.isenabled() == enabled
  finally:
    (gc.enable if before else gc.disable)()


def testLoopsArePartOfTheGraph():
  with tf.Graph().as_default() as graph, LoopBuilding():
    tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
  assert 'NextIteration' in {op.type for op in graph.get_operations()}


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
