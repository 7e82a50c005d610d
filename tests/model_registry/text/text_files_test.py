"""Which files are found."""

import os
import sys
import sysconfig

import pytest

from model_registry.text import text_files


def testFind(tmp_path):
  for name in ('b.txt', 'a.txt', 'c.py', 'd/e.txt'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(name)
  (tmp_path / 'folder.txt').mkdir()

  def _Found(*patterns):
    paths = text_files.Find(','.join(f'{tmp_path}/{p}' for p in patterns))
    return [os.path.relpath(p, tmp_path) for p in paths]

  assert _Found('*.txt') == ['a.txt', 'b.txt']
  assert _Found('c.*', '?.txt', 'a.txt') == ['a.txt', 'b.txt', 'c.py']
  assert _Found('**/*.txt') == ['a.txt', 'b.txt', 'd/e.txt']
  with pytest.raises(ValueError, match=r'No file matches .*nothing\*'):
    _Found('*.txt', 'nothing*')
  for nothing in ('', ' , '):
    with pytest.raises(ValueError, match='there must be a pattern'):
      text_files.Find(nothing)


def testPythonSources():
  found = text_files.PythonSources()
  assert all(p.endswith('.py') and 'site-packages' not in p for p in found)
  root = sysconfig.get_paths()['stdlib']
  assert os.path.join(root, 'os.py') in found
  assert os.path.join(root, 'json', 'decoder.py') in found
  train, test = [text_files.Split(found, s) for s in ('train', 'test')]
  assert sorted(train + test) == sorted(found)
  assert 0.02 < len(test) / len(found) < 0.1
  assert test != sorted(test)  # Their order is mixed.


def testMissingSources(tmp_path, monkeypatch):
  for name in ('site-packages/a.py', 'test/b.py', 'tests/c.py', 'd'):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(name)
  monkeypatch.setattr(sysconfig, 'get_paths', lambda: {'stdlib': str(tmp_path)})
  with pytest.raises(ValueError, match=f'found under {tmp_path}'):
    text_files.PythonSources()


def testTheSplitDependsOnNamesAlone():

  def _Splits(root, n):
    paths = [f'{root}/{i % 3}/{i}.py' for i in range(n)]
    return [{p[len(root):] for p in text_files.Split(paths, split)}
            for split in ('train', 'test')]

  train, test = _Splits('/one', 100)
  more_train, more_test = _Splits('/another/place', 200)
  assert train and test and not train & test
  assert train < more_train and test < more_test


def testTooFewFilesToSplit():
  with pytest.raises(ValueError, match='Of 1 text files under /texts, none .*'
                     "the test split.*input.test_files"):
    text_files.Split(['/texts/a.txt'], 'test')


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
