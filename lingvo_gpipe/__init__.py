"""Pipeline-parallel training for Lingvo: the public API.

`GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism`,
https://arxiv.org/abs/1811.06965.

Names are imported when they are first used: importing the package alone doesn't
import TensorFlow.
"""

import importlib

_MODULES = {
    'FeatureExtractionLayer': 'feature_extraction',
    'PartitionSequentialLayers': 'partition',
    'PipelinedTask': 'pipelined_task',
    'PipeliningLayer': 'pipelining_layer',
    'SeqLayer': 'feature_extraction',
    'StackedRecurrent': 'stacked_recurrent',
}
__all__ = sorted(_MODULES)


def __getattr__(name):
  if name not in _MODULES:
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
  module = importlib.import_module(f'{__name__}.{_MODULES[name]}')
  return getattr(module, name)
