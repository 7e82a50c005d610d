"""ImageNet's input on small files in the formats of the real ones."""

import sys

import lingvo.compat as tf
import numpy as np
import pytest

from model_registry.image import data_files
from model_registry.image import imagenet
from tests.model_registry.image import input_stream
from tests.model_registry.image import record_files

_SIZE = 16
_KEYS = {
    'original': ('{split}-{i:05d}-of-{n:05d}', 'image/encoded',
                 'image/class/label', 1),
    'prepared': ('imagenet2012/5.1.0/imagenet2012-{split}.tfrecord-{i:05d}-of-'
                 '{n:05d}', 'image', 'label', 0),
}
# Height and width; a colour each, so that an image is known by its colour.
_SHAPES = [(40, 60), (64, 32), (33, 33), (50, 20), (30, 90), (70, 71), (32, 32)]


def _Colour(i):
  return np.array([30 * i, 255 - 30 * i, 128])


def _Jpeg(i):
  image = np.broadcast_to(_Colour(i), (*_SHAPES[i], 3)).astype(np.uint8)
  return record_files.Encode(image, 'JPEG')


def _Write(folder, layout='original', split='train', files=2):
  """Writes the images into some files in turn, each with its number as label."""
  pattern, image_key, label_key, first_label = _KEYS[layout]
  for f in range(files):
    path = folder / pattern.format(split=split, i=f, n=files)
    record_files.Write(path, [
        {image_key: _Jpeg(i), label_key: i + first_label, 'more': b'x'}
        for i in range(f, len(_SHAPES), files)
    ])


def _Params(folder, **kwargs):
  return imagenet.ImageNetInput.Params().Set(
      data_dir=str(folder), num_samples=len(_SHAPES), batch_size=3,
      image_shape=(_SIZE, _SIZE, 3)).Set(**kwargs)


def _AssertOwnColour(batches, atol):
  for batch in batches:
    for image, label, weight in zip(batch.image, batch.label, batch.weight):
      if weight:
        pixels = image * imagenet._STDDEV + imagenet._MEAN  # pylint: disable=protected-access
        np.testing.assert_allclose(
            pixels, np.broadcast_to(_Colour(label), pixels.shape), atol=atol)


@pytest.mark.parametrize('layout, split', [
    ('original', 'validation'), ('prepared', 'validation')])
def testEvaluationSeesEachImageOnce(tmp_path, layout, split):
  _Write(tmp_path, layout, split)
  params = _Params(tmp_path, split=split)
  with input_stream.Open(params, do_eval=True) as stream:
    batches = stream.Rest()
  assert [b.weight.sum() for b in batches] == [3., 3., 1.]
  labels = np.concatenate([b.label for b in batches])[:len(_SHAPES)]
  assert labels.tolist() == [0, 2, 4, 6, 1, 3, 5]  # File by file.
  _AssertOwnColour(batches, atol=4.)


def testTraining(tmp_path):
  _Write(tmp_path, files=3)
  params = _Params(tmp_path)
  with input_stream.Open(params) as stream:
    batches = stream.Next(7)
  _AssertOwnColour(batches, atol=4.)
  labels = np.concatenate([b.label for b in batches]).reshape([3, 7])
  assert all(sorted(epoch) == list(range(7)) for epoch in labels)
  assert len(set(map(tuple, labels))) == 3
  with input_stream.Open(params, global_step=4) as stream:
    for batch, expected in zip(stream.Next(3), batches[4:]):
      np.testing.assert_array_equal(batch.label, expected.label)
      np.testing.assert_array_equal(batch.image, expected.image)


def testTheMiddleOfAnImage(tmp_path):
  # A black frame around the middle: 7/8 of the shorter side.
  image = np.zeros([128, 200, 3], np.uint8)
  image[8:120, 44:156] = 255
  record_files.Write(tmp_path / 'validation-00000-of-00001', [{
      'image/encoded': record_files.Encode(image, 'JPEG'),
      'image/class/label': 1000}])
  params = _Params(tmp_path, split='validation', num_samples=1)
  with input_stream.Open(params, do_eval=True) as stream:
    batch, = stream.Next(1)
  assert batch.label[0] == 999
  white = (255 - imagenet._MEAN) / imagenet._STDDEV  # pylint: disable=protected-access
  np.testing.assert_allclose(
      batch.image[0], np.broadcast_to(white, [_SIZE, _SIZE, 3]), atol=.1)


def _Explanation(params, error):
  """What is said about the error of reading everything."""
  with input_stream.Open(params, do_eval=True) as stream:
    with pytest.raises(error) as e:
      stream.Rest()
    return stream.generator.ExplainError(e.value)


def testDamagedFiles(tmp_path):
  _Write(tmp_path)
  path = tmp_path / 'train-00001-of-00002'
  whole = path.read_bytes()
  params = _Params(tmp_path)
  path.write_bytes(whole[:-100])
  text = _Explanation(params, tf.errors.DataLossError)
  assert f'{path} is damaged' in text and 'truncated' in text
  path.write_bytes(whole[:500] + b'xx' + whole[502:])
  text = _Explanation(params, tf.errors.DataLossError)
  assert f'{path} is damaged' in text and 'corrupted' in text
  path.write_bytes(b'')
  text = _Explanation(params, tf.errors.FailedPreconditionError)
  assert 'num_samples=7' in text


@pytest.mark.parametrize('example, words', [
    ({'image/encoded': b'GIF89a', 'image/class/label': 1}, 'not a JPEG'),
    ({'image/encoded': b'\xff\xd8\xff\xe0', 'image/class/label': 1}, 'JPEG'),
    ({'image/encoded': b'', 'image/class/label': 1}, 'train-00000-of-00001'),
    ({'image/class/label': 1}, 'image/encoded'),
])
def testRecordsThatArentImages(tmp_path, example, words):
  record_files.Write(tmp_path / 'train-00000-of-00001', [example])
  text = _Explanation(
      _Params(tmp_path, num_samples=1), tf.errors.InvalidArgumentError)
  assert text.startswith("ImageNetInput can't read its data: ")
  assert words in text


def testMissingFiles(tmp_path):
  with tf.Graph().as_default():
    with pytest.raises(data_files.MissingDataError) as e:
      _Params(tmp_path).Instantiate()
    for words in ('ImageNet (train)', f'train-*-of-* in {tmp_path}',
                  f'imagenet2012-train.tfrecord-*-of-* in {tmp_path}',
                  'https://image-net.org', 'tfds build imagenet2012'):
      assert words in str(e.value)
    with pytest.raises(ValueError, match="no split 'test'"):
      _Params(tmp_path, split='test').Instantiate()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
