"""Decoder-only Transformers."""

from lingvo import model_registry as lingvo_model_registry
import lingvo.compat as tf
from lingvo.core import base_model_params
from lingvo.core import optimizer
from lingvo.core import schedule

from lingvo_gpipe.layers import language_model as layers
from model_registry.lm import input_generator
from model_registry.lm import language_model
from model_registry.text import vocabulary


class TransformerBase(base_model_params.SingleTaskModelParams):
  """What the registered language models share.

  A subclass sets the attributes. --model_params_override changes the files:
  'input.train_files: /my/texts/*.txt; input.text_unit: line'.
  """

  NUM_LAYERS = None
  DIM = None
  HIDDEN_DIM = None
  NUM_HEADS = None
  DROPOUT_PROB = 0.0
  TIED = False  # Whether the softmax uses the embedding's weight.

  # See PackedTextInput.
  TRAIN_FILES = ''
  TEST_FILES = ''
  TEXT_UNIT = 'file'
  VOCABULARY = 'bytes'

  VOCAB_SIZE = 32000
  SEQUENCE_LENGTH = 1024
  BATCH_SIZE = 32
  NUM_MICRO_BATCHES = 4

  # The rate rises linearly, then falls as a cosine.
  MAX_STEPS = None
  WARMUP_STEPS = None
  LEARNING_RATE = None  # At its peak.
  OPTIMIZER = optimizer.Adam.Params().Set(beta2=0.98, epsilon=1e-9)

  def Task(self):
    tokens = tf.TensorSpec([self.BATCH_SIZE, self.SEQUENCE_LENGTH], tf.int32)
    p = language_model.LanguageModel.Params().Set(name='lm')
    p.pipeline.Set(
        name='pipeline',
        layers=layers.LanguageModelLayers(
            self.VOCAB_SIZE, self.NUM_LAYERS, self.DIM, self.HIDDEN_DIM,
            self.NUM_HEADS, self.DROPOUT_PROB, self.TIED),
        shared_weights=layers.TIED_WEIGHTS if self.TIED else {},
        input_shapes=[tokens] * 4,  # Ids, segment ids, positions, labels.
        num_micro_batches=self.NUM_MICRO_BATCHES)

    tp = p.train
    tp.optimizer = self.OPTIMIZER.Copy()
    tp.learning_rate = self.LEARNING_RATE
    tp.lr_schedule = schedule.LinearRampupCosineSchedule.Params().Set(
        warmup_steps=self.WARMUP_STEPS, total_steps=self.MAX_STEPS)
    tp.clip_gradient_norm_to_value = 1.0
    tp.max_steps = self.MAX_STEPS
    p.eval.samples_per_summary = 0  # The whole data set.
    return p

  def Train(self):
    return input_generator.PackedTextInput.Params().Set(
        split='train', train_files=self.TRAIN_FILES, test_files=self.TEST_FILES,
        text_unit=self.TEXT_UNIT, vocabulary=self.VOCABULARY,
        vocab_size=self.VOCAB_SIZE, sequence_length=self.SEQUENCE_LENGTH,
        batch_size=self.BATCH_SIZE)

  def Test(self):
    return self.Train().Set(split='test')


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerTiny(TransformerBase):
  """A small Transformer over bytes of Python's own source code.

  Two minutes or so on two CPU cores.
  """

  NUM_LAYERS = 4
  DIM = 128
  HIDDEN_DIM = 512
  NUM_HEADS = 4
  TIED = True
  VOCAB_SIZE = vocabulary.ByteVocabulary.size
  SEQUENCE_LENGTH = 128
  BATCH_SIZE = 8  # Many small steps learn most in a short time.
  NUM_MICRO_BATCHES = 2
  MAX_STEPS = 900
  WARMUP_STEPS = 60
  LEARNING_RATE = 3e-3

  def Task(self):
    p = super().Task()
    p.train.save_interval_seconds = 30
    p.train.save_max_to_keep = 3
    p.train.summary_interval_steps = 10
    p.eval.samples_per_summary = 1024  # Rows, a fixed sample of the test files.
    return p


@lingvo_model_registry.RegisterSingleTaskModel
class OneBillionWords(TransformerBase):
  """A Transformer of 184M parameters on the One Billion Word benchmark.

  The files are those of 'One Billion Word Benchmark for Measuring Progress in
  Statistical Language Modeling' (arXiv 1312.3005), as unpacked from
  1-billion-word-language-modeling-benchmark-r13output.tar.gz. A line is a
  sentence.
  """

  NUM_LAYERS = 12
  DIM = 1024
  HIDDEN_DIM = 4096
  NUM_HEADS = 16
  DROPOUT_PROB = 0.1
  TIED = True
  SEQUENCE_LENGTH = 256
  BATCH_SIZE = 256
  NUM_MICRO_BATCHES = 8
  MAX_STEPS = 300000
  WARMUP_STEPS = 4000
  LEARNING_RATE = 5e-4

  _FOLDER = 'data/1-billion-word-language-modeling-benchmark-r13output/'
  TRAIN_FILES = (
      _FOLDER + 'training-monolingual.tokenized.shuffled/news.en-*-of-00100')
  TEST_FILES = (_FOLDER + 'heldout-monolingual.tokenized.shuffled/'
                'news.en.heldout-00000-of-00050')
  TEXT_UNIT = 'line'
  VOCABULARY = _FOLDER + 'sentencepiece_32000.model'


class TransformerL(TransformerBase):
  """Transformer-L of the GPipe paper (arXiv 1811.06965), table 1.

  Its parameters are the paper's if the softmax has a weight of its own and all
  projections have biases. It counts 12 bytes a parameter: RMSProp with momentum
  has two slots. The paper doesn't say which text it was measured on.
  """

  DIM = 2048
  HIDDEN_DIM = 8192
  NUM_HEADS = 32
  NUM_MICRO_BATCHES = 32
  MAX_STEPS = 100000
  WARMUP_STEPS = 4000
  LEARNING_RATE = 1e-4
  OPTIMIZER = optimizer.RMSProp.Params().Set(epsilon=1e-8)
  TRAIN_FILES = 'data/text/train/*.txt'
  TEST_FILES = 'data/text/test/*.txt'
  VOCABULARY = 'data/text/sentencepiece_32000.model'


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerL3(TransformerL):
  """Transformer-L of 3 layers and 282M parameters: one device, no pipeline."""
  NUM_LAYERS = 3


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerL13(TransformerL):
  """Transformer-L of 13 layers and 786M parameters: one device, a pipeline."""
  NUM_LAYERS = 13


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerL103(TransformerL):
  """Transformer-L of 103 layers and 5.3B parameters: 8 devices."""
  NUM_LAYERS = 103


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerL415(TransformerL):
  """Transformer-L of 415 layers and 21.0B parameters: 32 devices."""
  NUM_LAYERS = 415


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerL1663(TransformerL):
  """Transformer-L of 1663 layers and 83.9B parameters: 128 devices."""
  NUM_LAYERS = 1663
