"""Residual networks for image classification."""

from lingvo import model_registry as lingvo_model_registry
from lingvo.core import base_model_params
from lingvo.core import optimizer
from lingvo.core import schedule

from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers import resnet
from model_registry.image import classifier
from model_registry.image import digits


class ResNetBase(base_model_params.SingleTaskModelParams):
  """What the registered networks share.

  A subclass gives the data sets, Train and Test, and sets the attributes.
  """

  DEPTH = None  # A key of resnet.CONFIGS.
  CONFIG = {}  # Fields of resnet.ResNetConfig to change.
  VARIANT = 'preactivation'
  BATCH_NORM_DECAY = 0.9
  BATCH_NORM_EPSILON = 1e-5

  # A micro-batch is what batch normalisation sees: 32 examples or more.
  BATCH_SIZE = None
  NUM_MICRO_BATCHES = 4

  # SGD with momentum; the rate rises linearly, then falls as a cosine.
  MAX_STEPS = None
  WARMUP_STEPS = None
  LEARNING_RATE = None  # At its peak, for a batch of BATCH_SIZE.
  WEIGHT_DECAY = 1e-4  # Of all weights but batch normalisation's.
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
            **self.CONFIG),
        input_shapes=[[self.BATCH_SIZE, *data.image_shape]],
        num_micro_batches=self.NUM_MICRO_BATCHES)

    tp = p.train
    tp.optimizer = optimizer.Momentum.Params().Set(alpha=0.9, use_nesterov=True)
    tp.learning_rate = self.LEARNING_RATE
    tp.lr_schedule = schedule.LinearRampupCosineSchedule.Params().Set(
        warmup_steps=self.WARMUP_STEPS, total_steps=self.MAX_STEPS)
    tp.l2_regularizer_weight = self.WEIGHT_DECAY
    tp.max_steps = self.MAX_STEPS
    p.eval.samples_per_summary = 0  # The whole data set.
    return p


@lingvo_model_registry.RegisterSingleTaskModel
class ResNetDigits(ResNetBase):
  """A pre-activation ResNet-14 on scikit-learn's handwritten digits.

  About 99% of the test split after 400 steps, a minute or so on two CPU cores.
  """

  DEPTH = 14
  CONFIG = dict(widths=(32, 64, 128))
  BATCH_NORM_EPSILON = 1e-3
  BATCH_SIZE = 128
  MAX_STEPS = 400
  WARMUP_STEPS = 40
  LEARNING_RATE = 0.1

  def Train(self):
    return digits.DigitsInput.Params().Set(
        split='train',
        num_samples=digits.NUM_TRAIN,
        batch_size=self.BATCH_SIZE,
        max_shift=1)

  def Test(self):
    return digits.DigitsInput.Params().Set(
        split='test', num_samples=digits.NUM_TEST, batch_size=self.BATCH_SIZE)

  def Task(self):
    p = super().Task()
    p.train.save_interval_seconds = 30
    p.train.save_max_to_keep = 3
    p.train.summary_interval_steps = 10
    return p
