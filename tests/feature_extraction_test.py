"""FeatureExtractionLayer on its own."""

import sys

import lingvo.compat as tf
from lingvo.core import layers
from lingvo.core import tshape
import pytest

import lingvo_gpipe
from tests import toy_layers


def _Params(**kwargs):
  return lingvo_gpipe.FeatureExtractionLayer.Params().Set(
      name='cell', sub=[
          toy_layers.Dense.Params().Set(name='dense'),
          layers.FetchLayer.Params().Set(name='fetch'),
          toy_layers.Dense.Params().Set(name='last'),
      ], **kwargs)


def testActivationsPassAndAreFetched(devices):
  params = _Params(
      num_act_inputs=1, num_act_outputs=2, act_fetch_layers=['fetch'])
  with tf.Graph().as_default() as graph:
    net = params.Instantiate()
    x, passed = tf.ones([2, 4]), tf.zeros([2, 7])
    last, first_act, fetched = net.FPropDefaultTheta(x, passed)
    expected = net.children['last'].FProp(net.theta['last'], fetched)
    assert first_act is passed
  last, expected = devices.Run(graph, 1, [last, expected])
  assert (last == expected).all()


def testMetaAddsUp():
  params = _Params(
      num_act_inputs=1, num_act_outputs=2, act_fetch_layers=['fetch'])
  meta = params.cls.FPropMeta(
      params, tshape.Shape([2, 4]), tshape.Shape([2, 7]))
  assert meta.flops == 2 * 2 * 4 * 4
  assert [s.ToTensorShape().as_list() for s in meta.out_shapes] == [
      [2, 4], [2, 7], [2, 4]]


def testPrefixAndScopeOfVariables():
  names = {}
  for in_parent in (False, True):
    with tf.Graph().as_default():
      _Params(
          variable_name_prefix='pre_',
          variables_in_parent_scope=in_parent).Instantiate()
      names[in_parent] = tf.trainable_variables()[0].name
  assert names == {False: 'cell/pre_dense/w/var:0', True: 'pre_dense/w/var:0'}


@pytest.mark.parametrize('kwargs,match', [
    (dict(num_act_outputs=1), 'num_act_outputs is 1; it must be'),
    (dict(num_act_outputs=1, act_fetch_layers=['none']),
     "act_fetch_layers names 'none', but the sublayers are dense, fetch, last"),
])
def testParamsThatDoNotFit(kwargs, match):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=match):
    _Params(**kwargs).Instantiate()


def testNoInputsLeft():
  with tf.Graph().as_default():
    net = _Params(num_act_inputs=1, num_act_outputs=1).Instantiate()
    with pytest.raises(ValueError, match='none is left for the layers'):
      net.FPropDefaultTheta(tf.ones([2, 4]))


def testSublayerWithoutAName():
  params = lingvo_gpipe.FeatureExtractionLayer.Params().Set(
      name='cell', sub=[toy_layers.Dense.Params()])
  with tf.Graph().as_default(), pytest.raises(ValueError, match='has no name'):
    params.Instantiate()


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
