"""Byte strings in another order: translation that can be checked."""

from lingvo import model_registry as lingvo_model_registry
from lingvo.core import optimizer
from lingvo.core import schedule

from model_registry.mt import byte_strings
from model_registry.mt import transformer
from model_registry.text import vocabulary


@lingvo_model_registry.RegisterSingleTaskModel
class ReverseBytes(transformer.TranslationBase):
  """Reverses strings of random bytes, 1 to 16 of them.

  Three minutes or so on two CPU cores.
  """

  TASK = 'reverse'
  NUM_LAYERS = 2
  DIM = 64
  HIDDEN_DIM = 256
  NUM_HEADS = 4

  VOCAB_SIZE = vocabulary.ByteVocabulary.size
  BUCKETS = (17,)
  BATCH_SIZES = (128,)

  # The rate rises linearly, then falls as a cosine.
  MAX_STEPS = 700
  WARMUP_STEPS = 100
  LEARNING_RATE = 3e-3

  def Train(self):
    return self._Input(
        byte_strings.ByteStringInput, task=self.TASK, random_seed=1)

  def Test(self):
    return self._Input(
        byte_strings.ByteStringInput, task=self.TASK, random_seed=2,
        num_samples=1024)

  def Task(self):
    p = super().Task().Set(decoder_bleu=False)
    p.pipeline.recompute = 'never'  # It is small.
    tp = p.train
    tp.optimizer = optimizer.Adam.Params().Set(beta2=0.98, epsilon=1e-9)
    tp.learning_rate = self.LEARNING_RATE
    tp.lr_schedule = schedule.LinearRampupCosineSchedule.Params().Set(
        warmup_steps=self.WARMUP_STEPS, total_steps=self.MAX_STEPS)
    tp.save_interval_seconds = 30
    tp.save_max_to_keep = 3
    tp.summary_interval_steps = 10
    return p


@lingvo_model_registry.RegisterSingleTaskModel
class SortBytes(ReverseBytes):
  """Sorts strings of random bytes, 1 to 16 of them."""

  TASK = 'sort'
  MAX_STEPS = 1500
