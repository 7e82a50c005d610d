"""Encoder-decoder Transformers for translation."""

from lingvo import model_registry as lingvo_model_registry
import lingvo.compat as tf
from lingvo.core import base_model_params
from lingvo.core import optimizer
from lingvo.core import schedule

from lingvo_gpipe.layers import translation_model
from model_registry.mt import parallel_text
from model_registry.mt import translator


class TranslationBase(base_model_params.SingleTaskModelParams):
  """What the registered translation models share.

  A subclass gives the data sets, Train and Test, and sets the attributes.
  """

  NUM_LAYERS = None  # Of the encoder, and of the decoder.
  DIM = None
  HIDDEN_DIM = None
  NUM_HEADS = None
  ATTEN_DIM = None  # DIM by default.
  DROPOUT_PROB = 0.0
  LABEL_SMOOTHING = 0.0
  LOGITS_ABS_MAX = 0.0
  SCALE_FEED_FORWARD = False
  SHARED_WEIGHTS = translation_model.TIED_WEIGHTS

  VOCAB_SIZE = None
  BUCKETS = None  # Lengths in tokens; the last one is the longest sentence.
  BATCH_SIZES = None  # One for each of BUCKETS.
  NUM_STAGES = 1
  NUM_MICRO_BATCHES = 4

  MAX_STEPS = None
  WARMUP_STEPS = None

  def Task(self):
    tokens = tf.TensorSpec([self.BATCH_SIZES[-1], self.BUCKETS[-1]], tf.int32)
    p = translator.Translator.Params().Set(name='mt')
    p.pipeline.Set(
        name='pipeline',
        layers=translation_model.TranslationLayers(
            self.VOCAB_SIZE, self.NUM_LAYERS, self.DIM, self.HIDDEN_DIM,
            self.NUM_HEADS, atten_dim=self.ATTEN_DIM,
            dropout_prob=self.DROPOUT_PROB, shared_weights=self.SHARED_WEIGHTS,
            label_smoothing=self.LABEL_SMOOTHING,
            logits_abs_max=self.LOGITS_ABS_MAX,
            scale_feed_forward=self.SCALE_FEED_FORWARD),
        shared_weights=self.SHARED_WEIGHTS,
        # Ids, segment ids and positions of both sides, and labels.
        input_shapes=[tokens] * 7,
        num_stages=self.NUM_STAGES,
        num_micro_batches=self.NUM_MICRO_BATCHES,
        pad_batch=len(set(self.BATCH_SIZES)) > 1)
    tp = p.train
    tp.max_steps = self.MAX_STEPS
    tp.clip_gradient_norm_to_value = 1.0
    p.eval.samples_per_summary = 0  # The whole data set.
    p.eval.decoder_samples_per_summary = 0
    return p

  def _Input(self, cls, **kwargs):
    """Params of an input generator that fits the model."""
    return cls.Params().Set(
        vocab_size=self.VOCAB_SIZE, bucket_upper_bound=list(self.BUCKETS),
        bucket_batch_limit=list(self.BATCH_SIZES),
        batch_size=max(self.BATCH_SIZES), **kwargs)


class ParallelText(TranslationBase):
  """Trains on parallel text files, with one sentencepiece model for both sides.

  --model_params_override='input.source_files: ...; input.target_files: ...;
  input.vocabulary: ...' names others.
  """

  # Patterns of the files of source and target, and the sentencepiece model.
  TRAIN_FILES = None
  TEST_FILES = None
  VOCABULARY = None

  # Attention Is All You Need, section 5.3: a linear rise, then the inverse
  # square root of the step.
  LEARNING_RATE = 1.0
  WARMUP_STEPS = 4000

  def Train(self):
    return self._ParallelText(self.TRAIN_FILES)

  def Test(self):
    return self._ParallelText(self.TEST_FILES)

  def _ParallelText(self, files):
    source, target = files
    return self._Input(
        parallel_text.ParallelTextInput, source_files=source,
        target_files=target, vocabulary=self.VOCABULARY)

  def Task(self):
    p = super().Task()
    tp = p.train
    tp.optimizer = optimizer.Adam.Params().Set(beta2=0.98, epsilon=1e-9)
    tp.learning_rate = self.LEARNING_RATE
    tp.lr_schedule = schedule.TransformerSchedule.Params().Set(
        warmup_steps=self.WARMUP_STEPS, model_dim=self.DIM)
    return p


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerBase(ParallelText):
  """The base Transformer of 63M parameters, on WMT'14 English to German.

  Table 3 of 'Attention Is All You Need' (arXiv 1706.03762), layer normalisation
  first. A batch has about 25,000 tokens of each language.
  """

  NUM_LAYERS = 6
  DIM = 512
  HIDDEN_DIM = 2048
  NUM_HEADS = 8
  DROPOUT_PROB = 0.1
  LABEL_SMOOTHING = 0.1
  VOCAB_SIZE = 37000
  BUCKETS = (16, 32, 48, 64, 96, 128)
  BATCH_SIZES = (1536, 768, 512, 384, 256, 192)
  MAX_STEPS = 100000

  _FOLDER = 'data/wmt14_en_de/'
  TRAIN_FILES = (_FOLDER + 'train*.en', _FOLDER + 'train*.de')
  TEST_FILES = (_FOLDER + 'newstest2014.en', _FOLDER + 'newstest2014.de')
  VOCABULARY = _FOLDER + 'sentencepiece_37000.model'


@lingvo_model_registry.RegisterSingleTaskModel
class TransformerBig(TransformerBase):
  """The big Transformer of 214M parameters, on WMT'14 English to German."""

  DIM = 1024
  HIDDEN_DIM = 4096
  NUM_HEADS = 16
  DROPOUT_PROB = 0.3
  MAX_STEPS = 300000


class Multilingual(ParallelText):
  """T(L, H, A) of the GPipe paper (arXiv 1811.06965), section 5.

  L layers in the encoder and in the decoder, hidden size H and A attention
  heads of 64 channels. Target and softmax have one embedding: so the paper's
  rounded numbers of parameters come out within 5%, and with three embeddings
  the smallest would have 474M. Files are one or more for each language.
  """

  DIM = 1024
  DROPOUT_PROB = 0.1
  LABEL_SMOOTHING = 0.1
  # What kept deep models stable in the paper. It doesn't tell the bound.
  LOGITS_ABS_MAX = 30.0
  SCALE_FEED_FORWARD = True
  SHARED_WEIGHTS = translation_model.TARGET_TIED_WEIGHTS

  VOCAB_SIZE = 64000
  # 260,000 tokens.
  BUCKETS = (128,)
  BATCH_SIZES = (2048,)
  NUM_MICRO_BATCHES = 32
  MAX_STEPS = 500000
  WARMUP_STEPS = 8000

  _FOLDER = 'data/multilingual/'
  TRAIN_FILES = (_FOLDER + 'train.*.source', _FOLDER + 'train.*.target')
  TEST_FILES = (_FOLDER + 'test.*.source', _FOLDER + 'test.*.target')
  VOCABULARY = _FOLDER + 'sentencepiece_64000.model'


@lingvo_model_registry.RegisterSingleTaskModel
class Multilingual400M(Multilingual):
  """T(6, 8192, 16) of the paper, 408M parameters: one device."""
  NUM_LAYERS = 6
  HIDDEN_DIM = 8192
  NUM_HEADS = 16
  ATTEN_DIM = 1024


@lingvo_model_registry.RegisterSingleTaskModel
class Multilingual1300MWide(Multilingual):
  """T(12, 16384, 32) of the paper, 1.2B parameters: 2 devices."""
  NUM_LAYERS = 12
  HIDDEN_DIM = 16384
  NUM_HEADS = 32
  ATTEN_DIM = 2048
  NUM_STAGES = 2


@lingvo_model_registry.RegisterSingleTaskModel
class Multilingual1300MDeep(Multilingual400M):
  """T(24, 8192, 16) of the paper, 1.2B parameters: 4 devices."""
  NUM_LAYERS = 24
  NUM_STAGES = 4


@lingvo_model_registry.RegisterSingleTaskModel
class Multilingual3B(Multilingual1300MWide):
  """T(32, 16384, 32) of the paper, 3.1B parameters: 8 devices."""
  NUM_LAYERS = 32
  NUM_STAGES = 8


@lingvo_model_registry.RegisterSingleTaskModel
class Multilingual6B(Multilingual1300MWide):
  """T(64, 16384, 32) of the paper, 6.0B parameters: 16 devices."""
  NUM_LAYERS = 64
  NUM_STAGES = 16
