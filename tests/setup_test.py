"""Set-up on machines of several kinds: tools/find_python.sh, tools/setup.sh and tools/pip_to_uv.py."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

_TOOLS = pathlib.Path(__file__).resolve().parents[1] / 'tools'
_VERSION = '%d.%d' % sys.version_info[:2]
_OTHER = '3.99'


def _Script(path, text):
  path.parent.mkdir(parents=True, exist_ok=True)
  path.write_text('#!/bin/sh\n' + text + '\n')
  path.chmod(0o755)


def _FindPython(path, home, *versions, **environ):
  """(what find_python.sh prints, or None where it finds nothing; what it says besides)."""
  run = subprocess.run(
      [_TOOLS / 'find_python.sh', *versions], capture_output=True, text=True, check=False,
      env={'PATH': os.pathsep.join([*map(str, path), '/usr/bin', '/bin']), 'HOME': str(home), **environ})
  return run.stdout.strip() if run.returncode == 0 else None, run.stderr


@pytest.fixture(name='good')
def _Good():
  """A shell command that behaves as this Python. (A link to one in a virtual environment would not.)"""
  return f'exec {sys.executable} "$@"'


def testFirstVersionThatRuns(tmp_path, good):
  _Script(tmp_path / f'python{_VERSION}', good)
  assert _FindPython([tmp_path], tmp_path, _OTHER, _VERSION)[0] == sys.executable


def testPassesOverAShimThatFails(tmp_path, good):
  _Script(tmp_path / 'pyenv/shims' / f'python{_OTHER}', 'echo not switched on >&2; exit 127')
  assert _FindPython([tmp_path / 'pyenv/shims'], tmp_path, _OTHER) == (None, '')


@pytest.mark.parametrize('known_by', ['home', 'variable', 'shims'])
def testLooksInPyenv(tmp_path, good, known_by):
  root = tmp_path / '.pyenv'
  # A version that is not on the PATH under any name of its own, so that only pyenv's folder can have it.
  fake = f'case "$*" in *version_info*) echo {_OTHER} {root}/versions/{_OTHER}.1/bin/python;; *) {good};; esac'
  _Script(root / f'versions/{_OTHER}.1/bin/python', fake)
  home = tmp_path if known_by == 'home' else tmp_path / 'elsewhere'
  environ = {'PYENV_ROOT': str(root)} if known_by == 'variable' else {}
  path = [root / 'shims'] if known_by == 'shims' else []
  assert _FindPython(path, home, _OTHER, **environ)[0] == f'{root}/versions/{_OTHER}.1/bin/python'


def testSaysThatVenvIsMissing(tmp_path):
  _Script(tmp_path / f'python{_OTHER}', f'case "$*" in *venv*) exit 1;; *) echo {_OTHER} $0;; esac')
  found, note = _FindPython([tmp_path], tmp_path, _OTHER)
  assert found is None
  assert f'apt-get install python{_OTHER}-venv' in note


def testLeavesAloneWhatALinkPointsTo(tmp_path):
  # Set-up ends where this Python is to make the environment.
  _Script(tmp_path / 'python3.10', 'case "$*" in *version_info*) echo 3.10 $0;; *--clear*) exit 77;; esac')
  (tmp_path / 'others').mkdir()
  (tmp_path / 'others/package').touch()
  (tmp_path / 'venv').symlink_to(tmp_path / 'others')
  run = subprocess.run(
      [_TOOLS / 'setup.sh', tmp_path / 'venv'], capture_output=True, text=True, check=False, cwd=_TOOLS.parent,
      env={'PATH': f'{tmp_path}:/usr/bin:/bin', 'HOME': str(tmp_path), 'STACK': 'portable'})
  assert run.returncode == 77, run.stderr
  assert f'{tmp_path}/venv is a link, to {tmp_path}/others' in run.stdout
  assert (tmp_path / 'others/package').exists()
  assert not (tmp_path / 'venv').is_symlink()


def _PipToUv():
  spec = importlib.util.spec_from_file_location('pip_to_uv', _TOOLS / 'pip_to_uv.py')
  module = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(module)
  return module


def testPipSettingsReachUv(tmp_path):
  settings = {
      'index-url': 'https://index.example/simple',
      'extra-index-url': f'file://{tmp_path} file://{tmp_path}/missing',
      'cert': '/etc/ca.pem',
      'find-links': f'{tmp_path}/missing',
  }
  assert _PipToUv().Exports(settings, {'SSL_CERT_FILE': '/mine.pem'}) == {
      'UV_DEFAULT_INDEX': 'https://index.example/simple',
      'UV_INDEX': f'file://{tmp_path}',
      'UV_INDEX_STRATEGY': 'unsafe-best-match',
  }


def testReadsPipsConfiguration(tmp_path, monkeypatch):
  pytest.importorskip('pip', reason='this environment has no pip (uv made it?)')
  (tmp_path / 'pip.conf').write_text('[global]\nindex-url = https://a.example\ntimeout = 7\n')
  monkeypatch.setenv('PIP_CONFIG_FILE', str(tmp_path / 'pip.conf'))
  monkeypatch.setenv('PIP_INDEX_URL', 'https://b.example')
  settings = _PipToUv().PipSettings()
  assert (settings['index-url'], settings['timeout']) == ('https://b.example', '7')


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
