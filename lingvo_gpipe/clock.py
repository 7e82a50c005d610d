"""The clock of a pipeline: runs the stages' work, event by event."""

import collections
import heapq

# What a stage does from start to end (in the units of the durations given):
# kind is 'forward', 'recompute' or 'backward'.
Work = collections.namedtuple(
    'Work', ['stage', 'micro_batch', 'kind', 'start', 'end', 'device'])

RECOMPUTE_MODES = ('always', 'never', 'except_last')


class Clock:
  """Runs the work, event by event.

  A task, (kind, stage, micro-batch), waits for others; when the last of them is
  done, and what it sends has arrived, it queues at its device, which takes the
  most urgent one that is there.
  """

  def __init__(self, num_stages, num_micro_batches, forward, backward,
               recompute, transfer, num_devices, in_flight):
    """Constructor; see schedule.py. in_flight: None for GPipe's schedule."""
    self._k = num_stages
    self._m = num_micro_batches
    self._num_devices = min(num_devices or num_stages, num_stages)
    self._in_flight = in_flight
    forward = _List(forward, num_stages)
    share = 1. if recompute in ('always', 'except_last') else 0.
    if recompute not in RECOMPUTE_MODES:
      share = recompute
    self._spared = num_micro_batches - 1 if recompute == 'except_last' else None
    self._durations = {
        'forward': forward,
        'recompute': [f * r for f, r in zip(forward, _List(share, num_stages))],
        'backward': _List(backward, num_stages)
    }
    self._transfer = _List(transfer, num_stages - 1)
    self._link_free = collections.defaultdict(float)
    # (time, whether a task's input arrives or else it is done, task, for which
    # of its ends); a heap.
    self._events = []
    self._queues = [[] for _ in range(self._num_devices)]  # (urgency, task)
    self._busy = [False] * self._num_devices
    self._touched = set()  # The devices for which something has changed.
    self._waits = {}  # task -> for how many others; -1 once it has started
    self._followers = collections.defaultdict(list)
    self._has_gradient = set()  # (stage, micro-batch)
    self._begun = {}  # Of tasks under way.
    self._work = [[] for _ in range(num_stages)]

  def Run(self):
    """The list of Work."""
    for task in self._Tasks():
      before = self._Before(*task)
      self._waits[task] = len(before)
      for other in before:
        self._followers[other].append(task)
      if task[1] == self._k - 1:
        self._has_gradient.add(task[1:])
    self._Queue(('forward', 0, 0), 0.)
    self._StartAll(0.)
    while self._events:
      now = self._events[0][0]
      while self._events and self._events[0][0] <= now * (1 + 1e-12):
        _, arrives, task, end = heapq.heappop(self._events)
        if arrives:
          self._Arrived(task, now)
        elif self._IsEnd(task, end):
          self._Done(task, now)
      self._StartAll(now)
    return [w for stage in self._work for w in stage]

  def _Tasks(self):
    for k in range(self._k):
      for t in range(self._m):
        yield 'forward', k, t
        if self._Recomputes(k, t):
          yield 'recompute', k, t
        yield 'backward', k, t

  def _Recomputes(self, k, t):
    return t != self._spared and self._durations['recompute'][k] > 0

  def _Before(self, kind, k, t):
    """The tasks that a task waits for."""
    if kind == 'forward':
      before = [('forward', k, t - 1)] if t else []
      if k:
        before.append(('forward', k - 1, t))
      elif self._in_flight and t >= self._in_flight:
        before.append(('backward', 0, t - self._in_flight))
      return before
    if self._in_flight:
      before = [('backward', k, t - 1)] if t else []
      before.append(('forward', k, t))
    else:  # The loss needs all micro-batches.
      before = [('backward', k, t + 1)] if t < self._m - 1 else []
      before.append(('forward', k, self._m - 1))
    if kind == 'backward':
      if k < self._k - 1:
        before.append(('backward', k + 1, t))
      if self._Recomputes(k, t):
        before.append(('recompute', k, t))
    return before

  def _Done(self, task, now):
    """A task is done. Its device is free, and others may wait less."""
    kind, k, t = task
    self._work[k].append(
        Work(k, t, kind, self._begun.pop(task), now, k % self._num_devices))
    self._busy[k % self._num_devices] = False
    self._touched.add(k % self._num_devices)
    for other in self._followers[task]:
      if other[1] == k:
        self._WaitsLess(other, now)
      else:
        heapq.heappush(self._events, (self._Arrival(k, other[1], now), True, other, 0))

  def _Arrival(self, sender, receiver, now):
    """When what a stage sends now will be there."""
    if (sender - receiver) % self._num_devices == 0:
      return now
    start = max(now, self._link_free[sender, receiver])
    arrival = start + self._transfer[min(sender, receiver)]
    self._link_free[sender, receiver] = arrival
    return arrival

  def _Arrived(self, task, now):
    """What another stage sends to a task is there."""
    kind, k, t = task
    if kind == 'backward':
      self._has_gradient.add((k, t))
      recompute = ('recompute', k, t)
      if self._waits.get(recompute) == 0:
        self._Queue(recompute, now)  # Once more: it is urgent now.
    self._WaitsLess(task, now)

  def _WaitsLess(self, task, now):
    self._waits[task] -= 1
    if not self._waits[task]:
      self._Queue(task, now)

  def _Queue(self, task, now):
    """Puts a task that may start into its device's queue."""
    kind, k, t = task
    urgency = {'backward': 0, 'forward': 2}.get(kind)
    if kind == 'recompute':
      urgency = 1 if (k, t) in self._has_gradient else 3
    heapq.heappush(self._queues[k % self._num_devices], (urgency, now, k, task))
    self._touched.add(k % self._num_devices)

  def _StartAll(self, now):
    """Every device that is free starts its most urgent task."""
    while self._touched:
      device = self._touched.pop()
      queue = self._queues[device]
      while queue and not self._busy[device]:
        task = heapq.heappop(queue)[-1]
        if self._waits[task] < 0:
          continue  # It was in the queue twice.
        self._waits[task] = -1
        self._busy[device] = True
        self._begun[task] = now
        self._Begin(task, now)

  def _Begin(self, task, now):
    """A device begins a task."""
    kind, k, _ = task
    heapq.heappush(self._events, (now + self._durations[kind][k], False, task, 0))

  def _IsEnd(self, unused_task, unused_end):
    """Whether a task ends as was foreseen in an event."""
    return True


class SharedClock(Clock):
  """Devices that share the cores of one CPU.

  A forward pass keeps one core busy: its operators follow from one another. A
  backward pass keeps nearly two: the gradients of the weights are taken beside
  those of the inputs, and the rest one after the other (convolutions with two
  threads to themselves: 1.8). So stages fill one another's bubbles. Where more
  cores are wanted than there are, the stages share them evenly.
  """

  _WANTED = {'forward': 1., 'recompute': 1., 'backward': 1.8}

  def __init__(self, cores, *args):
    super().__init__(*args)
    self._cores = cores
    self._left = {}  # The work that is left of tasks under way.
    self._rates = {}
    self._now = 0.
    self._last_end = 0  # Numbers the ends that were foreseen.

  def _Begin(self, task, now):
    kind, k, _ = task
    self._left[task] = self._durations[kind][k]

  def _IsEnd(self, task, end):
    return self._rates.get(task, (0, 0))[1] == end

  def _Done(self, task, now):
    del self._left[task]
    super()._Done(task, now)

  def _StartAll(self, now):
    """Starts tasks, then shares the cores anew."""
    for task, (rate, _) in self._rates.items():
      if task in self._left:
        self._left[task] = max(0., self._left[task] - rate * (now - self._now))
    self._now = now
    super()._StartAll(now)
    cores, self._rates = self._cores, {}
    wanting = sorted(self._left, key=lambda task: self._WANTED[task[0]])
    for i, task in enumerate(wanting):
      rate = min(self._WANTED[task[0]], cores / (len(wanting) - i))
      cores -= rate
      self._last_end += 1
      self._rates[task] = rate, self._last_end
      heapq.heappush(
          self._events,
          (now + self._left[task] / rate, False, task, self._last_end))


def _List(value, size):
  """A list of `size` numbers, of one number or of such a list."""
  if isinstance(value, (int, float)):
    return [float(value)] * size
  if len(value) != size:
    raise ValueError(f'{len(value)} durations are given where {size} are needed.')
  return [float(v) for v in value]
