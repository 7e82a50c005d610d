"""Split, join, and the sizes that are refused."""

import sys

import hypothesis
from hypothesis import strategies as st
import lingvo.compat as tf
import numpy as np
import pytest

from lingvo_gpipe import micro_batch


@hypothesis.settings(max_examples=20)
@hypothesis.given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.data())
def testJoinIsTheInverseOfSplit(m, size, rank, data):
  batch_dim = data.draw(st.integers(0, rank - 1))
  shape = [2] * rank
  shape[batch_dim] = m * size
  x = np.arange(np.prod(shape)).reshape(shape)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    split = micro_batch.Split(tf.constant(x), m, batch_dim)
    joined = micro_batch.Join(split, batch_dim)
    split, joined = session.run([split, joined])
  np.testing.assert_array_equal(joined, x)
  np.testing.assert_array_equal(split, np.split(x, m, axis=batch_dim))


@pytest.mark.parametrize('batch,m,expected', [
    (10, 4, [3, 3, 2, 2]), (8, 4, [2, 2, 2, 2]), (3, 8, [1, 1, 1])])
def testUnevenSizes(batch, m, expected):
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    sizes = session.run(micro_batch.UnevenSizes(tf.constant(batch), m))
  assert sizes.tolist() == expected


def testSize():
  assert micro_batch.Size(12, 4) == 3
  assert micro_batch.Size(12, 4, 3) == 3


@pytest.mark.parametrize('args,match', [
    ((12, 0), 'positive integer'),
    ((12, 2.), 'positive integer'),
    ((None, 4), 'not known'),
    ((12, 4, 4), r'4 \* 4 = 16, but the batch size is 12'),
    ((12, 5), 'nearest numbers that fit are 4 and 6'),
    ((12, 13), 'nearest numbers that fit are 12'),
])
def testSizesThatDoNotFit(args, match):
  with pytest.raises(ValueError, match=match):
    micro_batch.Size(*args)


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
