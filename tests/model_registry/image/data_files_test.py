"""Files are found where they should be; what is missing is named."""

import sys

import pytest

from model_registry.image import data_files


def _Write(folder, *names):
  folder.mkdir(parents=True, exist_ok=True)
  for name in names:
    (folder / name).write_bytes(b'x')


def _Find(data_dir, default_dir='/nowhere'):
  return data_files.Find(
      'Toys (train)', str(data_dir), str(default_dir),
      data_files.NamedFiles(['a.bin', 'b.bin'], ['', 'toys-bin']),
      data_files.PreparedFiles('toys', 'train'), 'Unpack toys.tar in {folder}.')


@pytest.mark.parametrize('folder', ['', 'toys-bin'])
def testNamedFiles(tmp_path, folder):
  _Write(tmp_path / folder, 'b.bin', 'a.bin', 'c.bin')
  _, paths = _Find(tmp_path)
  assert paths == [str(tmp_path / folder / name) for name in ('a.bin', 'b.bin')]


def testTheNewestPreparedVersionIsTaken(tmp_path):
  name = 'toys-train.tfrecord-{:05d}-of-00002'
  for version in ('3.0.2', '3.0.10', '2.9.9'):
    _Write(tmp_path / 'toys' / version, *map(name.format, range(2)))
  _Write(tmp_path / 'toys' / '3.0.10', 'toys-test.tfrecord-00000-of-00001',
         'dataset_info.json')
  _, paths = _Find(tmp_path)
  folder = tmp_path / 'toys' / '3.0.10'
  assert paths == [str(folder / name.format(i)) for i in range(2)]


def testDefaultFolders(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  home = tmp_path / 'tensorflow_datasets' / 'toys' / '1.0.0'
  _Write(home, 'toys-train.tfrecord-00000-of-00001')
  _, paths = _Find('', '~/data/toys')
  assert paths == [str(home / 'toys-train.tfrecord-00000-of-00001')]
  _Write(tmp_path / 'data' / 'toys', 'a.bin', 'b.bin')
  _, paths = _Find('', '~/data/toys')
  assert paths[0] == str(tmp_path / 'data' / 'toys' / 'a.bin')


def testNothingThere(tmp_path):
  with pytest.raises(data_files.MissingDataError) as e:
    _Find(tmp_path)
  for words in (
      'Toys (train)', f'a.bin, b.bin in {tmp_path} or {tmp_path}/toys-bin',
      f'toys-train.tfrecord-*-of-* in {tmp_path}/toys/*',
      f'Unpack toys.tar in {tmp_path}.', 'input.data_dir'):
    assert words in str(e.value)


def testSomeMissing(tmp_path):
  _Write(tmp_path / 'named', 'b.bin')
  with pytest.raises(data_files.MissingDataError) as e:
    _Find(tmp_path / 'named')
  assert f'1 of 2 data files are missing in {tmp_path}/named' in str(e.value)
  assert 'a.bin' in str(e.value)
  shards = [f'train-{i:05d}-of-00009' for i in (0, 8)]
  _Write(tmp_path / 'sharded', *shards)
  with pytest.raises(data_files.MissingDataError) as e:
    data_files.ShardedFiles('train').Find(str(tmp_path / 'sharded'))
  assert '7 of 9 data files' in str(e.value)
  assert 'train-00001-of-00009, ' in str(e.value)
  assert '... train-00007-of-00009' in str(e.value)


def testShardsOfTwoWritings(tmp_path):
  _Write(tmp_path, 'train-00000-of-00001', 'train-00000-of-00002',
         'train-00001-of-00002')
  paths = data_files.ShardedFiles('train').Find(str(tmp_path))
  assert [p[-5:] for p in paths] == ['00002', '00002']


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
