"""Each file in configs/ is taken by Lingvo, and says how to use it."""

import pathlib
import re
import sys

from absl.testing import flagsaver
from lingvo import model_registry as lingvo_model_registry
import lingvo.compat as tf
import pytest

_FOLDER = pathlib.Path(__file__).parent.parent / 'configs'
_FILES = sorted(p.name for p in _FOLDER.glob('*.txt'))
# Of the model in the file's command: what is different, and what came before.
_CHANGES = {
    'four_gpus.txt': {
        'task.pipeline.num_stages': (4, 1),
        'task.pipeline.num_micro_batches': (8, 8),
    },
    'eight_gpus_two_replicas.txt': {
        'input.batch_size': (128, 256),
        'task.pipeline.num_stages': (4, 1),
        'task.pipeline.num_micro_batches': (4, 8),
    },
    'cpu_smoke_test.txt': {
        'train.max_steps': (4, 400),
        'input.batch_size': (8, 128),
        'task.pipeline.num_stages': (2, 1),
        'task.pipeline.num_micro_batches': (2, 4),
    },
    'bfloat16.txt': {
        'task.fprop_dtype': (tf.bfloat16, tf.float32),
    },
    'float16.txt': {
        'task.fprop_dtype': (tf.float16, tf.float32),
        'task.loss_scaling.initial_scale': (32768., 0.),
    },
}


def _Command(name):
  """The command in the file's head."""
  text = (_FOLDER / name).read_text()
  head = '\n'.join(l[1:] for l in text.splitlines() if l.startswith('#'))
  return re.search(r'^ +(python -m (?:.*\\\n)*.*)', head, re.MULTILINE).group(1)


@pytest.mark.parametrize('name', _FILES)
def testOverrides(name):
  command = _Command(name)
  assert f'--model_params_file_override=configs/{name}' in command
  model = re.search(r'--model=(\S+)', command).group(1)
  before = lingvo_model_registry.GetParams(model, 'Train')
  with flagsaver.flagsaver(model_params_file_override=str(_FOLDER / name)):
    after = lingvo_model_registry.GetParams(model, 'Train')
  for key, expected in _CHANGES[name].items():
    assert (after.Get(key), before.Get(key)) == expected, key
    before.Set(**{key: after.Get(key)})
  assert after.ToText() == before.ToText()  # Nothing else.


def testEachFileIsListed():
  assert _FILES == sorted(_CHANGES)
  listed = re.findall(r'\]\((\w+\.txt)\)', (_FOLDER / 'README.md').read_text())
  assert sorted(listed) == _FILES


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
