"""What is measured: which implementations, and how many stages and micro-batches."""

import collections

# impl: `none` (the layers in sequence, on one core), `gpipe` (this project), `lingvo`, `torchgpipe` or
# `torch_pipelining`. schedule: `gpipe` or `1f1b`. recompute: `always` or `never`.
Case = collections.namedtuple('Case', ['workload', 'impl', 'schedule', 'recompute', 'stages', 'micro_batches'])

_PIPELINES = [
    # impl, schedule, recompute
    ('gpipe', 'gpipe', 'always'),
    ('gpipe', 'gpipe', 'never'),
    ('lingvo', 'gpipe', 'always'),
    ('torchgpipe', 'gpipe', 'always'),
    ('torchgpipe', 'gpipe', 'never'),
    ('torch_pipelining', 'gpipe', 'never'),
    ('torch_pipelining', '1f1b', 'never'),
]


def Group(workload, stages, micro_batches):
  """The cases that are measured side by side, first the one without a pipeline.

  1F1B needs as many micro-batches as stages, so it may be left out.
  """
  return [Case(workload, 'none', 'gpipe', 'never', 1, 1)] + [
      Case(workload, *pipeline, stages, micro_batches)
      for pipeline in _PIPELINES
      if pipeline[1] != '1f1b' or micro_batches >= stages
  ]


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


def Label(case):
  """A case for people, without what its group shares."""
  return f'{case.impl} {case.schedule} {case.recompute}'
