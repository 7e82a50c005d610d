"""Residual networks for image classification.

ResNetDigits, and by name: [PreAct]ResNet{18,34,50,101,152}ImageNet,
[PreAct]ResNet{20,56,110}Cifar10 and [PreAct]ResNet{20,56,110}Cifar100. PreAct is
the pre-activation variant (arXiv 1603.05027), the others are the original one
(arXiv 1512.03385).
"""

from lingvo import model_registry as lingvo_model_registry
from lingvo.core import base_model_params
from lingvo.core import optimizer
from lingvo.core import schedule

from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers import resnet
from model_registry.image import cifar
from model_registry.image import classifier
from model_registry.image import digits
from model_registry.image import imagenet


class ResNetBase(base_model_params.SingleTaskModelParams):
  """What the registered networks share.

  A subclass gives the data sets, Train and Test, and sets the attributes. The
  rate follows the batch (arXiv 1706.02677, section 2.1): a subclass with twice
  the BATCH_SIZE trains at twice the rate for half as many steps.
  """

  DEPTH = None  # A key of resnet.CONFIGS.
  CONFIG = {}  # Fields of resnet.ResNetConfig to change.
  VARIANT = 'original'
  ZERO_INIT_RESIDUAL = False
  BATCH_NORM_DECAY = 0.9
  BATCH_NORM_EPSILON = image_layers.LEAST_EPSILON

  # A micro-batch is what batch normalisation sees: 32 examples or more.
  BATCH_SIZE = None
  NUM_MICRO_BATCHES = 4

  # SGD with momentum. The rate rises linearly, then falls as a cosine or, where
  # DROPS says at which shares of the training, by 10 at each of them.
  EPOCHS = None
  WARMUP_EPOCHS = 5
  LEARNING_RATE = 0.1  # At its peak, for a batch of LEARNING_RATE_BATCH.
  LEARNING_RATE_BATCH = None
  DROPS = ()
  WEIGHT_DECAY = 1e-4  # Not of batch normalisation's weights, nor of biases.
  LABEL_SMOOTHING = 0.0

  def Task(self):
    data = self.Train()
    p = classifier.PipelinedClassifier.Params().Set(
        name='resnet', label_smoothing=self.LABEL_SMOOTHING)
    norm_tpl = image_layers.BatchNorm.Params().Set(
        decay=self.BATCH_NORM_DECAY, epsilon=self.BATCH_NORM_EPSILON)
    p.pipeline.Set(
        name='pipeline',
        layers=resnet.ResNetLayers(
            self.DEPTH,
            data.num_classes,
            input_dim=data.image_shape[-1],
            variant=self.VARIANT,
            norm_tpl=norm_tpl,
            zero_init_residual=self.ZERO_INIT_RESIDUAL,
            **self.CONFIG),
        input_shapes=[[self.BATCH_SIZE, *data.image_shape]],
        num_micro_batches=self.NUM_MICRO_BATCHES)

    tp = p.train
    tp.optimizer = optimizer.Momentum.Params().Set(alpha=0.9, use_nesterov=True)
    tp.learning_rate = (
        self.LEARNING_RATE * self.BATCH_SIZE / self.LEARNING_RATE_BATCH)
    tp.max_steps = self._Steps(data, self.EPOCHS)
    tp.lr_schedule = self._Schedule(
        self._Steps(data, self.WARMUP_EPOCHS), tp.max_steps)
    tp.l2_regularizer_weight = self.WEIGHT_DECAY
    p.eval.samples_per_summary = 0  # The whole data set.
    return p

  def _Steps(self, data, epochs):
    return round(epochs * data.num_samples / self.BATCH_SIZE)

  def _Schedule(self, warmup_steps, max_steps):
    if self.DROPS:
      return schedule.LinearRampupPiecewiseConstantSchedule.Params().Set(
          boundaries=[warmup_steps] + [round(d * max_steps) for d in self.DROPS],
          lrs=[0.1**i for i in range(len(self.DROPS) + 1)],
          num_splits=1)
    return schedule.LinearRampupCosineSchedule.Params().Set(
        warmup_steps=warmup_steps, total_steps=max_steps)


@lingvo_model_registry.RegisterSingleTaskModel
class ResNetDigits(ResNetBase):
  """A pre-activation ResNet-14 on scikit-learn's handwritten digits.

  About 99% of the test split after 400 steps, a minute or so on two CPU cores.
  """

  DEPTH = 14
  CONFIG = dict(widths=(32, 64, 128))
  VARIANT = 'preactivation'
  BATCH_NORM_EPSILON = 1e-3
  BATCH_SIZE = 128
  LEARNING_RATE_BATCH = 128
  EPOCHS = 400 * BATCH_SIZE / digits.NUM_TRAIN  # 400 steps.
  WARMUP_EPOCHS = EPOCHS / 10

  def Train(self):
    return digits.DigitsInput.Params().Set(
        split='train', batch_size=self.BATCH_SIZE, max_shift=1)

  def Test(self):
    return digits.DigitsInput.Params().Set(
        split='test', num_samples=digits.NUM_TEST, batch_size=self.BATCH_SIZE)

  def Task(self):
    p = super().Task()
    p.train.save_interval_seconds = 30
    p.train.save_max_to_keep = 3
    p.train.summary_interval_steps = 10
    return p


class _ImageNet(ResNetBase):
  """What the networks for ImageNet share: 90 epochs, the rate as a cosine."""

  ZERO_INIT_RESIDUAL = True
  BATCH_SIZE = 256
  NUM_MICRO_BATCHES = 8
  EPOCHS = 90
  LEARNING_RATE_BATCH = 256
  LABEL_SMOOTHING = 0.1

  def Train(self):
    return imagenet.ImageNetInput.Params().Set(
        split='train', batch_size=self.BATCH_SIZE)

  def Test(self):
    return imagenet.ImageNetInput.Params().Set(
        split='validation',
        num_samples=imagenet.NUM_VALIDATION,
        batch_size=self.BATCH_SIZE)


class _Cifar(ResNetBase):
  """What the networks for CIFAR share: 164 epochs, the rate in steps."""

  INPUT = None  # An input generator of cifar.py.
  BATCH_SIZE = 128
  EPOCHS = 164  # 64,000 steps.
  LEARNING_RATE_BATCH = 128
  DROPS = (.5, .75)

  def Train(self):
    return self.INPUT.Params().Set(
        split='train',
        batch_size=self.BATCH_SIZE,
        max_shift=4,
        random_flip=True)

  def Test(self):
    return self.INPUT.Params().Set(
        split='test',
        num_samples=cifar.NUM_TEST,
        batch_size=self.BATCH_SIZE)


def _Register(depths, data, base, **attributes):
  """Registers, and defines here, each depth in both variants for a data set."""
  for prefix, variant in (('', 'original'), ('PreAct', 'preactivation')):
    for depth in depths:
      name = f'{prefix}ResNet{depth}{data}'
      doc = f'ResNet-{depth} for {data}, {variant} variant.'
      globals()[name] = lingvo_model_registry.RegisterSingleTaskModel(
          type(name, (base,), dict(
              attributes, DEPTH=depth, VARIANT=variant, __doc__=doc,
              __module__=__name__)))


_Register((18, 34, 50, 101, 152), 'ImageNet', _ImageNet)
_Register((20, 56, 110), 'Cifar10', _Cifar, INPUT=cifar.Cifar10Input)
_Register((20, 56, 110), 'Cifar100', _Cifar, INPUT=cifar.Cifar100Input)
