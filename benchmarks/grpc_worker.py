"""The worker of this project's pipeline over two processes, a stage and a core each, which talk by gRPC on loopback.

  python -m benchmarks.grpc_worker '["residual", "gpipe_grpc", "gpipe", "never", 2, 8]'

The first stage's process builds the graph and runs the steps. It starts the other one, whose only part is to have a
TensorFlow server.
"""

import json
import socket
import sys

import lingvo.compat as tf

from benchmarks import cases
from benchmarks import client
from benchmarks import tf_step
from benchmarks import worker

_JOB = 'worker'


def _Config():
  """As in one process, but with threads for what arrives while an operator runs: TensorFlow starts one a core."""
  config = tf_step.SessionConfig(1)
  config.inter_op_parallelism_threads = 3
  return config


def _Server(task, ports):
  """Starts the TensorFlow server of a task, on that core."""
  worker.Pin(task, 1)
  cluster = tf.train.ClusterSpec({_JOB: [f'localhost:{port}' for port in ports]})
  return tf.distribute.Server(cluster, _JOB, task, config=_Config())


def _FreePorts(count):
  """Ports that nobody listens on."""
  sockets = [socket.create_server(('localhost', 0)) for _ in range(count)]
  ports = [s.getsockname()[1] for s in sockets]
  for s in sockets:
    s.close()
  return ports


class _Peer(worker.Trainer):
  """A process that computes what the other one sends it."""

  def __init__(self, task, ports):
    self._server = _Server(task, ports)

  def Step(self):
    return 0.


class _Trainer(worker.Trainer):
  """The process that runs the steps."""

  def __init__(self, case):
    ports = _FreePorts(case.stages)
    # Before this process gives up the others' cores.
    self._peers = [
        client.Worker(sys.executable, 'benchmarks.grpc_worker', json.dumps(case), str(task), json.dumps(ports),
                      own_group=False) for task in range(1, case.stages)
    ]
    devices = [f'/job:{_JOB}/replica:0/task:{k}/device:CPU:0' for k in range(case.stages)]
    step = tf_step.TrainingStep(case, devices)
    self.build_s = step.build_s
    self._server = _Server(0, ports)
    for peer in self._peers:
      peer.Ready()
    self._run = step.Start(self._server.target, _Config())

  def Step(self):
    return float(self._run()[0])

  def PeakMb(self):
    return super().PeakMb() + sum(peer.Quit() for peer in self._peers)


def _Build(case, task=None, ports=None):
  return _Trainer(case) if task is None else _Peer(int(task), json.loads(ports))


if __name__ == '__main__':
  case_, *rest = sys.argv[1:]
  worker.Serve(lambda: _Build(cases.Case(*json.loads(case_)), *rest))
