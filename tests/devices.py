"""Really separate devices for tests: virtual CPU devices, or GPUs on request."""

import lingvo.compat as tf
from lingvo.core import cluster_factory
import pytest

_V1 = tf.compat.v1


class Devices:
  """K devices, and how to build and run a graph on them."""

  def __init__(self, use_gpu):
    self._type = 'GPU' if use_gpu else 'CPU'

  def Names(self, k):
    """The full names of K devices; skips the test where they aren't there."""
    if self._type == 'GPU':
      found = len(tf.config.list_physical_devices('GPU'))
      if found < max(2, k):
        pytest.skip(f'needs {max(2, k)} GPUs, but TensorFlow sees {found}')
    return [
        f'/job:localhost/replica:0/task:0/device:{self._type}:{i}'
        for i in range(k)
    ]

  def Cluster(self, k, **kwargs):
    """A Lingvo cluster whose one model split is K devices."""
    self.Names(k)
    count = {'gpus' if self._type == 'GPU' else 'cpus': k}
    return cluster_factory.ForTestingWorker(
        mode='sync', job='trainer_client', split_size=k, **count, **kwargs)

  def Session(self, graph, k, rewrite=True):
    """A session with K devices of the type.

    Args:
      graph: The graph.
      k: The number of devices.
      rewrite: Whether TensorFlow may rewrite the graph before it runs it.

    Returns:
      A tf.Session.
    """
    config = _V1.ConfigProto()
    config.graph_options.rewrite_options.disable_meta_optimizer = not rewrite
    if self._type == 'CPU':
      config.device_count['CPU'] = k
    session = _V1.Session(graph=graph, config=config)
    found = [
        d.name for d in session.list_devices() if d.device_type == self._type
    ]
    assert len(found) >= k, found
    return session

  def Run(self, graph, k, fetches):
    """Initialises the variables and runs `fetches`; returns their values."""
    with graph.as_default():
      init = _V1.global_variables_initializer()
    with self.Session(graph, k) as session:
      session.run(init)
      return session.run(fetches)

  def Placed(self, graph, k, fetches):
    """The graph as it is placed, not rewritten: {device name: GraphDef}."""
    with graph.as_default():
      init = _V1.global_variables_initializer()
    metadata = _V1.RunMetadata()
    with self.Session(graph, k, rewrite=False) as session:
      session.run(init)
      session.run(
          fetches, options=_V1.RunOptions(output_partition_graphs=True),
          run_metadata=metadata)
    return {g.node[0].device: g for g in metadata.partition_graphs if g.node}
