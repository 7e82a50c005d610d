"""One way to run a pipeline: its cut, its clock, its memory."""

import dataclasses
import functools
from typing import List, Optional, Sequence

import numpy as np

from lingvo_gpipe import best_cut
from lingvo_gpipe import cuts
from lingvo_gpipe import partition
from lingvo_gpipe import schedule as schedule_lib
from lingvo_gpipe.planning import memory as memory_lib


@dataclasses.dataclass(frozen=True)
class Devices:
  """The devices, one a stage.

  Attributes:
    memory: Bytes of each, a list.
    flops: Sustained FLOPs a second of each, a list.
    bandwidth: Bytes a second from one to the next.
    cores: Where they are virtual devices of one CPU, how many cores they share;
      see clock.SharedClock.
  """
  memory: Sequence[float]
  flops: Sequence[float]
  bandwidth: float
  cores: Optional[int] = None

  def First(self, k):
    """The first k of them."""
    return dataclasses.replace(
        self, memory=self.memory[:k], flops=self.flops[:k])


@dataclasses.dataclass(frozen=True)
class Choice:
  """What there is to choose."""
  num_stages: int
  num_micro_batches: int
  recompute: str
  schedule: str


@dataclasses.dataclass(frozen=True)
class Stage:
  """A stage of a plan: its layers start..end, memory and seconds."""
  start: int
  end: int
  num_params: int
  memory: memory_lib.Memory
  limit: float
  forward_seconds: float
  backward_seconds: float
  recompute_seconds: float

  @property
  def total_bytes(self):
    return sum(self.memory)

  @property
  def seconds(self):
    """For one micro-batch."""
    return self.forward_seconds + self.recompute_seconds + self.backward_seconds


@dataclasses.dataclass(frozen=True)
class Plan:
  """What a choice comes to."""
  choice: Choice
  stages: List[Stage]
  step_seconds: float
  examples_per_second: float
  bubble: float
  imbalance: float  # Of the stages' times, see cuts.Imbalance.
  no_fit: Optional[best_cut.MemoryLimitError] = None  # Where no cut fits.

  @property
  def fits(self):
    return all(s.total_bytes <= s.limit for s in self.stages)

  @property
  def boundaries(self):
    """The first layer of each stage but the first."""
    return [s.start for s in self.stages[1:]]


class Planner:
  """Makes Plans for some layers and devices."""

  def __init__(self, costs_at, batch, slots, devices, rule='min_max',
               in_flight=None):
    """Constructor.

    Args:
      costs_at: num_micro_batches -> a cost_model.LayerCost of each layer.
      batch: Examples in a mini-batch.
      slots: How many numbers the optimizer keeps for a weight.
      devices: Devices; at least as many as stages are asked for.
      rule: See partition.Partition.
      in_flight: See PipeliningLayer.
    """
    self._in_flight = in_flight
    self._costs_at = costs_at
    self._batch = batch
    self._slots = slots
    self._devices = devices
    self._rule = rule
    self.Make = functools.lru_cache(maxsize=None)(self._Make)
    self.Memory = functools.lru_cache(maxsize=None)(self._Memory)
    self._MostInFlight = functools.lru_cache(maxsize=None)(self._CountInFlight)

  def _Make(self, choice):
    """The Plan of a choice.

    The stages are cut such that they fit into the devices' memory, if they can
    be; if not, as if there were no limit.

    Raises:
      ValueError: there are more stages than layers, or the rule can't be
        followed.
    """
    devices = self._devices.First(choice.num_stages)
    costs = self._costs_at(choice.num_micro_batches)
    forward, again, backward = _Seconds(costs, choice.recompute)
    stage_memory = self.Memory(choice)
    no_fit = None
    arguments = dict(
        costs=forward + again + backward,
        num_stages=choice.num_stages,
        rule=self._rule,
        speeds=_Speeds(costs, devices),
        boundary_bytes=[c.input_bytes for c in costs])
    try:
      stages = partition.Partition(
          memory=stage_memory.Limited(devices.memory), **arguments)
    except best_cut.MemoryLimitError as e:
      no_fit = e
      stages = partition.Partition(**arguments)
    speeds = _Speeds(costs, devices)
    if choice.schedule == '1f1b':
      again[stages[-1][0]:] = 0.  # The last stage never recomputes.
    made = [
        Stage(start, end, sum(c.num_params for c in costs[start:end]),
              stage_memory.Of(k, start, end), devices.memory[k],
              *(float(np.sum(x[start:end])) / speeds[k]
                for x in (forward, backward, again)))
        for k, (start, end) in enumerate(stages)
    ]
    transfer = [costs[s.start].input_bytes / devices.bandwidth for s in made[1:]]
    work = self._Clock(choice, made, transfer)
    step = schedule_lib.StepTime(work)
    return Plan(
        choice, made, step, self._batch / step,
        schedule_lib.BubbleFraction(work),
        cuts.Imbalance([s.seconds * v for s, v in zip(made, speeds)], speeds),
        no_fit)

  def LeastSeconds(self, choice):
    """A bound: no Plan of the choice has a shorter step."""
    costs = self._costs_at(choice.num_micro_batches)
    seconds = sum(_Seconds(costs, choice.recompute))
    speeds = _Speeds(costs, self._devices.First(choice.num_stages))
    even = max(np.sum(seconds) / np.sum(speeds), np.max(seconds) / np.max(speeds))
    return choice.num_micro_batches * even

  def _Memory(self, choice):
    """The StageMemory of a choice."""
    m = choice.num_micro_batches
    in_flight, joined = [m] * choice.num_stages, m
    if choice.schedule == '1f1b':
      in_flight, joined = self._MostInFlight(choice.num_stages, m), 0
    return memory_lib.StageMemory(
        self._costs_at(m), choice.recompute, self._slots, in_flight, joined)

  def _CountInFlight(self, num_stages, num_micro_batches):
    """The most micro-batches that each stage holds with 1f1b."""
    return schedule_lib.MostInFlight(
        schedule_lib.OneForwardOneBackward(
            num_stages, num_micro_batches, in_flight=self._in_flight))

  def _Clock(self, choice, stages, transfer):
    """The schedule of the stages, a list of Work."""
    arguments = dict(
        num_stages=len(stages),
        num_micro_batches=choice.num_micro_batches,
        forward=[s.forward_seconds for s in stages],
        backward=[s.backward_seconds for s in stages],
        recompute='except_last',
        transfer=transfer,
        cores=self._devices.cores)
    if choice.schedule == 'gpipe' and choice.recompute == 'except_last':
      return schedule_lib.FillDrain(**arguments)
    arguments['recompute'] = [
        s.recompute_seconds / s.forward_seconds if s.forward_seconds else 0.
        for s in stages
    ]
    if choice.schedule == 'gpipe':
      return schedule_lib.FillDrain(**arguments)
    return schedule_lib.OneForwardOneBackward(
        in_flight=self._in_flight, **arguments)


def _Speeds(costs, devices):
  """What _Seconds is divided by: FLOPs a second, or 1 where time is measured."""
  return np.ones(len(devices.flops)) if _Timed(costs) else np.asarray(
      devices.flops, np.float64)


def _Timed(costs):
  return all(c.forward_seconds is not None for c in costs)


def _Seconds(costs, recompute):
  """Each layer's forward, recomputation and backward pass: three arrays.

  In seconds where all are measured, or else in FLOPs.
  """
  timed = _Timed(costs)

  def Array(what):
    return np.array([what(c) for c in costs], np.float64)

  flops = Array(lambda c: c.forward_flops)
  forward = Array(lambda c: c.forward_seconds) if timed else flops
  backward = Array(lambda c: c.backward_seconds if timed else c.backward_flops)
  share = {'never': 0., 'selective': None}.get(recompute, 1.)
  if share is None:
    products = Array(lambda c: c.product_flops)
    share = 1 - np.divide(products, flops, out=np.zeros_like(flops), where=flops > 0)
  return forward, forward * share, backward
