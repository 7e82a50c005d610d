"""The whole run, by the launcher: training in two stages, then decoding."""

import re
import sys

import pytest

from tests import launcher_process

_SHARE = r'test exact match: (0\.\d+|1\.0+)'


@pytest.mark.slow
def testExactMatch(tmp_path):
  process = launcher_process.LauncherProcess(tmp_path)
  try:
    flags = ['--model=model_registry.mt.reverse.ReverseBytes',
             f'--logdir={tmp_path / "log"}']
    trained = process.Run(*flags, '--num_stages=2')
    assert trained.code == 0, trained.err
    found = re.search(_SHARE, trained.out.splitlines()[-1])
    assert float(found.group(1)) >= .95, trained.out
    # By the decoder job, in a process without stages.
    decoded = process.Run(*flags, '--job=decoder_Test', '--num_stages=1')
    assert decoded.code == 0, decoded.err
    assert re.search(_SHARE, decoded.out).group(1) == found.group(1)
  finally:
    process.Close()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
