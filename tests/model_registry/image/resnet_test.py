"""The registered networks train, alike for any number of stages."""

import sys

from absl.testing import flagsaver
import lingvo.compat as tf
from lingvo import model_registry as lingvo_model_registry
import numpy as np
import pytest

from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers import residual_block
from model_registry.image import digits
from model_registry.image import resnet

_MODULE = 'model_registry.image.resnet'
_NAME = f'{_MODULE}.ResNetDigits'
# By data set: depths with their numbers of blocks, classes and image size.
_REGISTERED = {
    'ImageNet': ({18: 8, 34: 16, 50: 16, 101: 33, 152: 50}, 1000, 224),
    'Cifar10': ({20: 9, 56: 27, 110: 54}, 10, 32),
    'Cifar100': ({20: 9, 56: 27, 110: 54}, 100, 32),
}


def _Params(dataset, k=1):
  p = lingvo_model_registry.GetParams(_NAME, dataset)
  p.task.pipeline.num_stages = k
  return p


def testParams():
  p = _Params('Train')
  assert p.input.num_samples == digits.NUM_TRAIN
  assert p.task.pipeline.num_stages == 1
  # What batch normalisation sees.
  assert p.input.batch_size // p.task.pipeline.num_micro_batches >= 32
  test = _Params('Test')
  assert test.input.num_samples == digits.NUM_TEST
  assert test.input.split == 'test' and not test.input.max_shift


@pytest.mark.parametrize('data', _REGISTERED)
@pytest.mark.parametrize('prefix, variant', [
    ('', 'original'), ('PreAct', 'preactivation')])
def testRegistered(prefix, variant, data):
  depths, num_classes, size = _REGISTERED[data]
  for depth, num_blocks in depths.items():
    name = f'{prefix}ResNet{depth}{data}'
    cls = getattr(resnet, name)
    assert f'ResNet-{depth} for {data}' in cls.__doc__ and variant in cls.__doc__
    for dataset in ('Train', 'Test'):
      p = lingvo_model_registry.GetParams(f'{_MODULE}.{name}', dataset)
      assert p.input.image_shape == (size, size, 3)
      assert p.input.batch_size // p.task.pipeline.num_micro_batches >= 32
      assert p.task.pipeline.input_shapes == [[p.input.batch_size, size, size, 3]]
      layers = p.task.pipeline.layers
      # tests/layers/resnet_test.py counts the parameters of such layers.
      assert len(layers) == num_blocks + 2
      assert layers[0].small_images == (size == 32)
      assert {l.variant for l in layers} == {variant}
      # Batch normalisation is one operator.
      assert all(l.norm_tpl.epsilon >= image_layers.LEAST_EPSILON for l in layers)
      assert layers[-1].num_classes == num_classes
      blocks = [l for l in layers if l.cls is residual_block.ResidualBlock]
      assert {l.bottleneck for l in blocks} == {depth in (50, 101, 152)}
      assert {l.shortcut for l in blocks} == {'pad' if size == 32 else 'projection'}
    assert p.input.num_samples == (50000 if data == 'ImageNet' else 10000)


def _Rates(p, steps):
  """The learning rate after some steps."""
  with tf.Graph().as_default(), tf.Session() as session:
    schedule = p.train.lr_schedule.Instantiate()
    step = tf.placeholder(tf.int64, [])
    rate = p.train.learning_rate * schedule.Value(step)
    return [session.run(rate, {step: s}) for s in steps]


def testRecipeForImageNet():
  p = lingvo_model_registry.GetParams(f'{_MODULE}.ResNet50ImageNet', 'Train')
  assert p.input.num_samples == 1281167 and p.input.random_flip
  tp = p.task.train
  assert (tp.optimizer.alpha, tp.optimizer.use_nesterov) == (.9, True)
  assert tp.l2_regularizer_weight == 1e-4
  assert p.task.label_smoothing == .1
  epoch = 1281167 / 256
  assert p.train.max_steps == round(90 * epoch)
  rates = _Rates(p.task, [round(e * epoch) for e in (0, 2.5, 5, 45, 90)])
  np.testing.assert_allclose(rates, [0., .05, .1, .05, 0.], atol=1e-3)


def testRecipeForCifar():
  p = lingvo_model_registry.GetParams(f'{_MODULE}.ResNet56Cifar100', 'Train')
  assert p.input.num_samples == 50000
  assert p.input.random_flip and p.input.max_shift == 4
  test = lingvo_model_registry.GetParams(f'{_MODULE}.ResNet56Cifar100', 'Test')
  assert not test.input.random_flip and not test.input.max_shift
  assert p.train.max_steps == 64062 and not p.task.label_smoothing
  rates = _Rates(p.task, [0, 976, 2000, 32000, 32100, 48000, 48100, 64000])
  np.testing.assert_allclose(
      rates, [0., .05, .1, .1, .01, .01, .001, .001], rtol=1e-2)


def testTheRateFollowsTheBatch():

  class Larger(resnet.ResNet50ImageNet):
    BATCH_SIZE = 1024

  p, larger = resnet.ResNet50ImageNet().Task(), Larger().Task()
  assert larger.train.learning_rate == 4 * p.train.learning_rate
  # But for rounding.
  assert abs(larger.train.max_steps - p.train.max_steps / 4) < 1
  assert abs(larger.train.lr_schedule.warmup_steps -
             p.train.lr_schedule.warmup_steps / 4) < 1


def _Train(devices, k, steps):
  """Losses of the first steps, and the shapes of all variables by name."""
  graph = tf.Graph()
  # Initial weights then depend on seed and name alone.
  with flagsaver.flagsaver(stateless_vars_init=True), graph.as_default():
    with devices.Cluster(k):
      model = _Params('Train', k).Instantiate()
      model.ConstructFPropBPropGraph()
    init = tf.global_variables_initializer()
    shapes = {v.name: v.shape.as_list() for v in tf.global_variables()}
  task = model.GetTask()
  # Without rewrites: with them, where a stage ends changes the order in which
  # gradients are added, and ReLUs make more of the last bit step by step.
  with devices.Session(graph, k, rewrite=False) as session:
    session.run(init)
    task.input.Initialize(session)
    losses = [
        session.run([task.eval_metrics['loss'][0], task.train_op])[0]
        for _ in range(steps)
    ]
  return losses, shapes


@pytest.mark.slow
def testStagesDontChangeLossesAndCheckpoints(devices):
  expected, expected_shapes = _Train(devices, 1, steps=12)
  losses, shapes = _Train(devices, 2, steps=12)
  assert shapes == expected_shapes
  np.testing.assert_allclose(losses, expected, rtol=1e-5)
  assert losses[-1] < losses[0] - .2


def testEvaluationCoversTheTestSplit(devices):
  p = _Params('Test')
  graph = tf.Graph()
  with graph.as_default(), devices.Cluster(1, do_eval=True):
    model = p.Instantiate()
    model.ConstructFPropGraph()
    init = tf.global_variables_initializer()
  task = model.GetTask()
  assert task.params.eval.samples_per_summary == digits.NUM_TEST
  with devices.Session(graph, 1) as session:
    session.run(init)
    task.input.Initialize(session)
    counts = []
    with pytest.raises(tf.errors.OutOfRangeError):
      while True:
        metrics = session.run(task.eval_metrics)
        counts.append(metrics['num_samples_in_batch'][0])
  assert counts == [128., 128., 104.]


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
