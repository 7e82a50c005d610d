"""The worker of the PyTorch peers: torchgpipe, one process, and torch.distributed.pipelining, a process a stage.

  python -m benchmarks.torch_worker '["residual", "torchgpipe", "gpipe", "never", 2, 8]'

The first stage's process of torch.distributed.pipelining starts the other one, another worker, and passes on to it
what it is told itself.
"""

import json
import os
import sys
import tempfile

from benchmarks import cases
from benchmarks import client
from benchmarks import worker
from benchmarks import workloads

_LEARNING_RATE = 1e-6


class _TorchGPipe(worker.Trainer):
  """torchgpipe.GPipe.

  It has a thread a device, and all CPUs are one device to it. So its stages don't overlap here, however many cores
  there are; what it shows is the cost of its micro-batches and its recomputation.
  """

  def __init__(self, case):
    worker.Pin(0, case.stages)
    # pylint: disable=g-import-not-at-top
    import torch
    import torchgpipe
    from benchmarks import torch_layers
    torch.set_num_threads(1)
    workload = workloads.Get(case.workload)
    self._model = torchgpipe.GPipe(
        torch.nn.Sequential(*torch_layers.Layers(workload)), balance=workload.Balance(case.stages),
        devices=['cpu'] * case.stages, chunks=case.micro_batches, checkpoint=case.recompute)
    self._inputs, self._labels = torch_layers.Inputs(workload), torch_layers.Labels(workload)
    self._loss = torch_layers.Loss(workload)
    self._optimizer = torch.optim.SGD(self._model.parameters(), _LEARNING_RATE)

  def Step(self):
    self._optimizer.zero_grad()
    loss = self._loss(self._model(self._inputs), self._labels)
    loss.backward()
    self._optimizer.step()
    return loss.item()


class _TorchPipelining(worker.Trainer):
  """One stage of torch.distributed.pipelining; the first one also runs the other."""

  def __init__(self, case, rank, store):
    self._peer = None
    if rank == 0 and case.stages > 1:  # Before this process gives up the other's core.
      self._peer = client.Worker(
          sys.executable, 'benchmarks.torch_worker', json.dumps(case), '1', store, own_group=False)
    worker.Pin(rank, 1)
    # pylint: disable=g-import-not-at-top
    import torch
    from torch import distributed
    from torch.distributed import pipelining
    from benchmarks import torch_layers
    torch.set_num_threads(1)
    workload = workloads.Get(case.workload)
    distributed.init_process_group('gloo', init_method=f'file://{store}', rank=rank, world_size=case.stages)
    first = sum(workload.Balance(case.stages)[:rank])
    layers = torch_layers.Layers(workload)[first:first + workload.Balance(case.stages)[rank]]
    stage = torch.nn.Sequential(*layers)
    schedule = {'gpipe': pipelining.ScheduleGPipe, '1f1b': pipelining.Schedule1F1B}[case.schedule]
    self._schedule = schedule(
        pipelining.PipelineStage(stage, rank, case.stages, torch.device('cpu')), case.micro_batches,
        loss_fn=torch_layers.Loss(workload))
    self._args = (torch_layers.Inputs(workload),) if rank == 0 else ()
    self._target = torch_layers.Labels(workload) if rank == case.stages - 1 else None
    self._optimizer = torch.optim.SGD(stage.parameters(), _LEARNING_RATE)
    self._distributed, self._torch = distributed, torch

  def Step(self):
    self._optimizer.zero_grad()
    losses = []
    self._schedule.step(*self._args, target=self._target, losses=losses)
    self._optimizer.step()
    # The last stage tells its loss, which also makes the first one wait for the end of the step.
    loss = self._torch.stack(losses).mean().detach() if losses else self._torch.zeros(())
    self._distributed.all_reduce(loss)
    return loss.item()

  def Steps(self, n):
    if self._peer:
      self._peer.Send(f'steps {n}')
    times = super().Steps(n)
    if self._peer:
      self._peer.Times()
    return times

  def WarmedUp(self):
    if self._peer:
      self._peer.Ready()

  def PeakMb(self):
    return super().PeakMb() + (self._peer.Quit() if self._peer else 0)


def _Build(case, rank='0', store=None):
  if case.impl == 'torchgpipe':
    return _TorchGPipe(case)
  return _TorchPipelining(case, int(rank), store)


if __name__ == '__main__':
  with tempfile.TemporaryDirectory() as folder:
    case_, *rest = sys.argv[1:]
    rest = rest or ['0', os.path.join(folder, 'store')]
    worker.Serve(lambda: _Build(cases.Case(*json.loads(case_)), *rest))
