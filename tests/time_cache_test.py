"""A cache of times in a file, as several processes write it."""

import json
import sys

import pytest

from lingvo_gpipe import time_cache

_KEY = {'class': 'a.Layer', 'params': 'name: 1', 'inputs': 'float32'}


def testWhatWasAddedIsThereForTheNextToo(tmp_path):
  path = str(tmp_path / 'logs' / 'times.json')
  first = time_cache.TimeCache(path)
  assert first.Get(_KEY) is None
  first.Add(_KEY, (1., 2.))
  for cache in (first, time_cache.TimeCache(path)):
    assert cache.Get(_KEY) == (1., 2.)
    assert cache.Get(dict(_KEY, params='name: 2')) is None
  # The order in which a key was made up doesn't matter.
  assert first.Get(dict(reversed(_KEY.items()))) == (1., 2.)
  # People can read what was timed, but for the params.
  entry, = json.loads((tmp_path / 'logs' / 'times.json').read_text()).values()
  assert entry == {'class': 'a.Layer', 'inputs': 'float32', 'forward_seconds': 1., 'backward_seconds': 2.}


def testAnotherProcessesTimesStay(tmp_path):
  path = str(tmp_path / 'times.json')
  ours, theirs = time_cache.TimeCache(path), time_cache.TimeCache(path)
  theirs.Add(dict(_KEY, params='theirs'), (3., 4.))
  ours.Add(_KEY, (1., 2.))
  cache = time_cache.TimeCache(path)
  assert cache.Get(_KEY) == (1., 2.)
  assert cache.Get(dict(_KEY, params='theirs')) == (3., 4.)
  assert [p.name for p in tmp_path.iterdir()] == ['times.json']


def testInTheCurrentFolder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  time_cache.TimeCache('times.json').Add(_KEY, (1., 2.))
  assert time_cache.TimeCache('times.json').Get(_KEY) == (1., 2.)


def testWithoutAFileNothingIsKept():
  cache = time_cache.TimeCache(None)
  cache.Add(_KEY, (1., 2.))
  assert cache.Get(_KEY) is None


@pytest.mark.parametrize('text', [
    '{"a', '[]', '{"a": 1}', '{"a": {}}', '{"a": {"forward_seconds": "x", "backward_seconds": 1}}'])
def testAFileThatIsNoCache(tmp_path, text):
  path = tmp_path / 'times.json'
  path.write_text(text)
  with pytest.raises(ValueError, match='times.json does not hold times .*Remove it'):
    time_cache.TimeCache(str(path))


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
