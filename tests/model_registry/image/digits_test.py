"""The split of the digits is what it always was."""

import hashlib
import sys

import numpy as np
import pytest

from model_registry.image import digits


def testSplitIsFixedAndStratified():
  train_images, train_labels = digits.LoadDigits('train')
  test_images, test_labels = digits.LoadDigits('test')
  assert train_images.shape == (digits.NUM_TRAIN, 8, 8, 1)
  assert test_images.shape == (digits.NUM_TEST, 8, 8, 1)
  assert train_images.dtype == np.float32 and train_labels.dtype == np.int64
  assert (train_images.min(), train_images.max()) == (0., 1.)
  assert set(np.bincount(test_labels)) <= {35, 36, 37}
  everything = np.concatenate([train_images, test_images]).reshape([-1, 64])
  assert len(np.unique(everything, axis=0)) == 1797
  # scikit-learn or numpy may not change it unnoticed: accuracies would not
  # compare, and a resumed run would test with what it was trained on.
  digest = hashlib.sha256(test_images.tobytes()).hexdigest()
  assert digest.startswith('53d6a8c3d406e86d')


def testUnknownSplit():
  with pytest.raises(ValueError, match="no split 'dev'.*'train' or 'test'"):
    digits.LoadDigits('dev')


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
