"""CIFAR's inputs on small files in the formats of the real ones."""

import sys

import lingvo.compat as tf
import numpy as np
import pytest

from model_registry.image import cifar
from model_registry.image import data_files
from tests.model_registry.image import input_stream
from tests.model_registry.image import record_files

_PER_FILE = 3
_CLASSES = {cifar.Cifar10Input: 10, cifar.Cifar100Input: 100}
_PREFIXES = {cifar.Cifar10Input: b'', cifar.Cifar100Input: b'\x13'}
_FILES = {
    (cifar.Cifar10Input, 'train'): [f'data_batch_{i}.bin' for i in range(1, 6)],
    (cifar.Cifar10Input, 'test'): ['test_batch.bin'],
    (cifar.Cifar100Input, 'train'): ['train.bin'],
    (cifar.Cifar100Input, 'test'): ['test.bin'],
}


def _Images(num_classes, n):
  """n images, uint8, and their labels."""
  random = np.random.RandomState(n)
  images = random.randint(0, 256, [n, 32, 32, 3]).astype(np.uint8)
  return images, random.randint(0, num_classes, [n])


def _WriteBinary(folder, cls, split):
  """Writes the files as A. Krizhevsky's archive has them; returns images, labels."""
  names = _FILES[cls, split]
  images, labels = _Images(_CLASSES[cls], _PER_FILE * len(names))
  for i, name in enumerate(names):
    with open(folder / name, 'wb') as f:
      for j in range(i * _PER_FILE, (i + 1) * _PER_FILE):
        f.write(_PREFIXES[cls] + bytes([labels[j]]))
        f.write(images[j].transpose(2, 0, 1).tobytes())
  return images, labels


def _WritePrepared(folder, cls, split):
  """Writes the files as tensorflow-datasets does; returns images, labels."""
  images, labels = _Images(_CLASSES[cls], 4)
  name = f'cifar{_CLASSES[cls]}'
  path = folder / name / '3.0.2' / f'{name}-{split}.tfrecord-00000-of-00001'
  record_files.Write(path, [
      {'id': b'x', 'image': record_files.Encode(image, 'PNG'), 'label': int(label)}
      for image, label in zip(images, labels)
  ])
  return images, labels


def _Params(folder, cls, split, **kwargs):
  return cls.Params().Set(
      split=split, data_dir=str(folder), batch_size=2).Set(**kwargs)


@pytest.mark.parametrize('write, cls, split', [
    (_WriteBinary, cifar.Cifar10Input, 'train'),
    (_WriteBinary, cifar.Cifar10Input, 'test'),
    (_WriteBinary, cifar.Cifar100Input, 'train'),
    (_WriteBinary, cifar.Cifar100Input, 'test'),
    (_WritePrepared, cifar.Cifar10Input, 'test'),
    (_WritePrepared, cifar.Cifar100Input, 'train'),
])
def testEachImageOnceAndWhole(tmp_path, write, cls, split):
  images, labels = write(tmp_path, cls, split)
  params = _Params(tmp_path, cls, split, num_samples=len(labels))
  with input_stream.Open(params, do_eval=True) as stream:
    batches = stream.Rest()
  real = np.concatenate([b.weight for b in batches]) == 1.
  assert real.sum() == len(labels)
  actual = np.concatenate([b.image for b in batches])[real]
  np.testing.assert_array_equal(
      np.concatenate([b.label for b in batches])[real], labels)
  # Back from what they are normalised to.
  low, high = (
      # pylint: disable-next=protected-access
      (v - cifar._MEAN[_CLASSES[cls]]) / cifar._STDDEV[_CLASSES[cls]]
      for v in (0., 255.))
  np.testing.assert_allclose(
      (actual - low) / (high - low) * 255., images, atol=1e-3)


def _IsPart(pixels, image):
  """Whether pixels are the image, shifted by up to 4."""
  middle = np.round(pixels[4:28, 4:28])
  return any((middle == image[y:y + 24, x:x + 24]).all()
             for y in range(9) for x in range(9))


def testTrainingShufflesShiftsAndFlips(tmp_path):
  images, labels = _WriteBinary(tmp_path, cifar.Cifar10Input, 'train')
  params = _Params(
      tmp_path, cifar.Cifar10Input, 'train', num_samples=15, batch_size=15,
      max_shift=4, random_flip=True)
  with input_stream.Open(params) as stream:
    first, second = stream.Next(2)
  assert sorted(first.label) == sorted(second.label) == sorted(labels)
  assert (first.label != second.label).any()
  assert first.image.shape == images.shape
  for image, label in zip(first.image, first.label):
    pixels = image * cifar._STDDEV[10] + cifar._MEAN[10]  # pylint: disable=protected-access
    original = images[labels == label]
    assert any(
        _IsPart(pixels, i) or _IsPart(pixels, i[:, ::-1]) for i in original)


def testDamagedFiles(tmp_path):
  _WriteBinary(tmp_path, cifar.Cifar10Input, 'train')
  params = _Params(tmp_path, cifar.Cifar10Input, 'train', num_samples=15)
  path = tmp_path / 'data_batch_3.bin'
  path.write_bytes(path.read_bytes()[:-1])
  with tf.Graph().as_default():
    with pytest.raises(ValueError, match=r'data_batch_3.bin is damaged.*9,218 by'):
      params.Instantiate()
    path.write_bytes(b'')
    with pytest.raises(ValueError, match='data_batch_3.bin is damaged.* 0 bytes'):
      params.Instantiate()
    path.write_bytes(bytes(2 * 3073))
    with pytest.raises(ValueError, match='hold 14 images.*num_samples=15'):
      params.Instantiate()
    path.unlink()
    with pytest.raises(data_files.MissingDataError, match='data_batch_3.bin'):
      params.Instantiate()


def testDamagedPreparedFile(tmp_path):
  _WritePrepared(tmp_path, cifar.Cifar10Input, 'test')
  path, = tmp_path.glob('*/*/*')
  path.write_bytes(path.read_bytes()[:-20])
  params = _Params(tmp_path, cifar.Cifar10Input, 'test', num_samples=4)
  with input_stream.Open(params, do_eval=True) as stream:
    with pytest.raises(tf.errors.DataLossError) as e:
      stream.Next(9)
    assert f'{path} is damaged' in stream.generator.ExplainError(e.value)


def testFilesOfTheOtherDataSet(tmp_path):
  data = bytes([50]) + bytes(3072)
  (tmp_path / 'test_batch.bin').write_bytes(data)
  params = _Params(tmp_path, cifar.Cifar10Input, 'test', num_samples=1)
  with input_stream.Open(params, do_eval=True) as stream:
    with pytest.raises(tf.errors.InvalidArgumentError) as e:
      stream.Next(1)
    assert 'outside of 0 to 9' in stream.generator.ExplainError(e.value)


def testMissingFiles(tmp_path):
  with tf.Graph().as_default():
    with pytest.raises(data_files.MissingDataError) as e:
      _Params(tmp_path, cifar.Cifar100Input, 'train').Instantiate()
    for words in ('CIFAR-100 (train)', f'train.bin in {tmp_path}',
                  f'{tmp_path}/cifar-100-binary', 'cifar-100-binary.tar.gz',
                  'tfds build cifar100', 'input.data_dir'):
      assert words in str(e.value)
    with pytest.raises(ValueError, match="no split 'dev'.*'train' or 'test'"):
      _Params(tmp_path, cifar.Cifar100Input, 'dev').Instantiate()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
