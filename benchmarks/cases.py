"""What is measured: which implementations, and how many stages and micro-batches."""

import collections

# impl: `none` (the layers in sequence, on one core), `gpipe` (this project), `gpipe_grpc` (the same, a process a
# stage), `lingvo`, `torchgpipe` or `torch_pipelining`. schedule: `gpipe` or `1f1b`. recompute: `never`, or when this
# project recomputes (`always` for the others that do).
Case = collections.namedtuple('Case', ['workload', 'impl', 'schedule', 'recompute', 'stages', 'micro_batches'])

_NONE = ('none', 'gpipe', 'never')
_OURS = [
    # impl, schedule, recompute
    ('gpipe', 'gpipe', 'always'),
    ('gpipe', 'gpipe', 'except_last'),
    ('gpipe', 'gpipe', 'selective'),
    ('gpipe', 'gpipe', 'never'),
    ('gpipe', '1f1b', 'always'),
    ('gpipe', '1f1b', 'selective'),
    ('gpipe', '1f1b', 'never'),
]
# Of these, one for each way to build the loops.
_MAIN = [pipeline for pipeline in _OURS if pipeline[1:] in (('gpipe', 'always'), ('gpipe', 'never'), ('1f1b', 'never'))]
_LINGVO = ('lingvo', 'gpipe', 'always')
_TORCHGPIPE = [
    ('torchgpipe', 'gpipe', 'always'),
    ('torchgpipe', 'gpipe', 'never'),
]
_TORCH_PIPELINING = [
    ('torch_pipelining', 'gpipe', 'never'),
    ('torch_pipelining', '1f1b', 'never'),
]


def _Cases(pipelines, workload, stages, micro_batches):
  """The cases of implementations; without what PyTorch's 1F1B can't do, fewer micro-batches than stages."""
  return [
      Case(workload, *pipeline, stages, micro_batches)
      for pipeline in pipelines
      if pipeline[:2] != ('torch_pipelining', '1f1b') or micro_batches >= stages
  ]


def Group(workload, stages, micro_batches):
  """The cases that are measured side by side, first the one without a pipeline."""
  pipelines = [*_OURS, _LINGVO, *_TORCHGPIPE, *_TORCH_PIPELINING]
  return [Case(workload, *_NONE, 1, 1)] + _Cases(pipelines, workload, stages, micro_batches)


def QuickGroups():
  """The groups of `make bench-quick`."""
  return [Group('residual', 2, 8)]


def AllGroups():
  """The groups of `make bench`."""
  return [
      Group(workload, stages, micro_batches)
      for workload in ('residual', 'resnet50', 'transformer')
      for stages in (1, 2)
      for micro_batches in (1, 4, 8, 16)
  ]


def ProcessGroups():
  """The groups of `make bench-grpc`: a process a stage."""
  pipelines = [('gpipe_grpc', *rest) for _, *rest in _MAIN] + _TORCH_PIPELINING
  return [[Case('residual', *_NONE, 1, 1)] + _Cases(pipelines, 'residual', 2, 8)]


def BuildGroup():
  """The cases of `make bench-build`."""
  return _Cases([*_MAIN, _LINGVO], 'resnet101', 4, 8)


def MemoryCases():
  """The cases of `make bench-memory`.

  Returns:
    (cases that differ in depth: 4 to 32 blocks and a batch of 512; cases that differ in the number of micro-batches, of
    8 examples each), two lists.
  """
  pipelines = [*_OURS, _LINGVO]
  depth = []
  for blocks in (4, 8, 16, 32):
    workload = f'residual:{blocks}:512'
    depth += [Case(workload, *_NONE, 1, 1)] + _Cases(pipelines, workload, 2, 16)
  micro_batches = []
  for m in (16, 32, 64):
    micro_batches += _Cases(pipelines, f'residual:16:{8 * m}', 2, m)
  return depth, micro_batches


def Label(case):
  """A case for people, without what its group shares."""
  return f'{case.impl} {case.schedule} {case.recompute}'
