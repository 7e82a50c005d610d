"""A classifier, a language model and a translator that train in no time."""
from lingvo import model_registry

from lingvo_gpipe.layers import resnet
from model_registry.image import resnet as image
from model_registry.lm import transformer as lm
from model_registry.mt import reverse as mt


@model_registry.RegisterSingleTaskModel
class Classifier(image.ResNetDigits):
  """A ResNet of one block, evaluated with averages of its weights."""

  DEPTH = resnet.ResNetConfig((1,), (4,), small_images=True)
  CONFIG = {}
  BATCH_SIZE = 32

  def Task(self):
    p = super().Task()
    p.train.ema_decay = .5
    return p


@model_registry.RegisterSingleTaskModel
class LanguageModel(lm.TransformerTiny):
  """A Transformer of two layers, trained on this file."""

  NUM_LAYERS = 2
  DIM = 8
  HIDDEN_DIM = 16
  NUM_HEADS = 2
  SEQUENCE_LENGTH = 32
  BATCH_SIZE = 4
  TRAIN_FILES = TEST_FILES = __file__

  def Train(self):
    return super().Train().Set(shuffle_buffer_size=1)


@model_registry.RegisterSingleTaskModel
class Translator(mt.ReverseBytes):
  """An encoder-decoder of two layers."""

  NUM_LAYERS = 1
  DIM = 8
  HIDDEN_DIM = 16
  NUM_HEADS = 2
  BUCKETS = (6,)
  BATCH_SIZES = (8,)

  def Train(self):
    return super().Train().Set(max_length=5)

  def Test(self):
    return super().Test().Set(max_length=5, num_samples=12)
