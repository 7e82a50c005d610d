"""What pytest needs to run Lingvo-style tests."""

import os

from absl import flags
import hypothesis
import pytest

from tests import devices as devices_lib


def pytest_addoption(parser):
  parser.addoption(
      '--use_gpu', action='store_true', help='Compute on GPUs instead of virtual CPU devices; needs at least two.')


@pytest.fixture(name='devices')
def _Devices(request):
  return devices_lib.Devices(request.config.getoption('--use_gpu'))


def pytest_configure():
  # Lingvo reads absl flags; pytest, not absl, owns the command line.
  flags.FLAGS.mark_as_parsed()
  # The first example of a test builds its graph, so its time says nothing. CI must not fail by the draw.
  hypothesis.settings.register_profile('project', deadline=None, derandomize='CI' in os.environ)
  hypothesis.settings.load_profile('project')


def pytest_collection_modifyitems(items):
  # A helper of TensorFlow's TestCase that only its name makes a test.
  items[:] = [item for item in items if item.name != 'test_session']
