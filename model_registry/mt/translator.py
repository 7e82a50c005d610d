"""Translation with the network in a pipeline."""

import json

import lingvo.compat as tf
from lingvo.core import metrics as lingvo_metrics
from lingvo.core import py_utils
import numpy as np

from lingvo_gpipe import layers_in_sequence
from lingvo_gpipe import pipelined_task
from lingvo_gpipe.layers import greedy_decoding


class Translator(pipelined_task.PipelinedTask):
  """Predicts each token of the target from those before it and the source.

  The pipeline is translation_model.TranslationLayers or the like. Batches are
  those of pair_input.SentencePairInput. Decoding is greedy.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define(
        'decoder_max_length', None, 'Where decoding stops, in tokens. None: at '
        "the input generator's longest bucket.")
    p.Define('decoder_bleu', True, 'Whether the decoder job takes BLEU.')
    return p

  def PipelineInputs(self, theta, input_batch):
    src, tgt = input_batch.src, input_batch.tgt
    return (src.ids, src.segment_ids, src.positions, tgt.ids, tgt.segment_ids,
            tgt.positions, tgt.labels)

  def PipelineTargets(self, theta, input_batch):
    return py_utils.NestedMap(weights=input_batch.tgt.weights)

  def MicroBatchMetrics(self, theta, outputs, targets):
    """Means over real tokens.

    Args:
      theta: Not used.
      outputs: (loss, hit), float32 [batch, time], as of seq2seq.TargetSoftmax.
      targets: NestedMap of `weights`, float32 [batch, time], 1 for a real token.

    Returns:
      {name: (value, weight)}: `loss` (in training, with smoothed labels) and
      `log_pplx`, nats a token; `accuracy`, the share of tokens that are right,
      given those before.
    """
    loss, hit = outputs
    weights = targets.weights
    num_tokens = tf.reduce_sum(weights)

    def _Mean(x):
      return (tf.reduce_sum(x * weights) / tf.maximum(num_tokens, 1.0),
              num_tokens)

    return {'loss': _Mean(loss), 'log_pplx': _Mean(loss), 'accuracy': _Mean(hit)}

  def ComputeLoss(self, theta, predictions, input_batch):
    """As the parent's; batches of different lengths have different sizes."""
    metrics, per_example = super().ComputeLoss(theta, predictions, input_batch)
    num_pairs = tf.reduce_sum(_IsPair(input_batch))
    # Lingvo averages metrics over the splits of a batch; this one is a sum.
    num_pairs *= self.cluster.num_splits_per_client
    metrics['num_samples_in_batch'] = (num_pairs, tf.constant(1.0))
    return metrics, per_example

  def DecodeWithTheta(self, theta, input_batch):
    """Translates greedily, without a pipeline.

    Args:
      theta: NestedMap of the weights.
      input_batch: NestedMap of the input generator's tensors.

    Returns:
      NestedMap of ids and their numbers (int32 [batch, time] and [batch]):
      `source`, `source_lengths`, `target`, `target_lengths` (the reference) and
      `decoded`, `decoded_lengths`, all without sos and eos; and `weights`,
      float32 [batch], 0 for what fills the batch up.
    """
    src, tgt = input_batch.src, input_batch.tgt
    decoded, decoded_lengths = self._Translate(theta, src)

    def _Lengths(segment_ids):
      return tf.maximum(tf.reduce_sum(segment_ids, 1) - 1, 0)

    return py_utils.NestedMap(
        source=src.ids, source_lengths=_Lengths(src.segment_ids),
        target=tgt.labels, target_lengths=_Lengths(tgt.segment_ids),
        decoded=decoded, decoded_lengths=decoded_lengths,
        weights=_IsPair(input_batch))

  def Inference(self):
    """An exported model translates greedily.

    Returns:
      As the parent's. In: `source`, int32 [batch, time], ids that end with eos;
      `source_lengths`, int32 [batch], eos included; what is behind may be
      anything. Out: `decoded`, int32 [batch, longest], and `decoded_lengths`,
      int32 [batch], without eos.
    """
    source = tf.placeholder(tf.int32, [None, None])
    lengths = tf.placeholder(tf.int32, [None])
    positions = tf.range(tf.shape(source)[1])
    real = tf.cast(positions < lengths[:, None], tf.int32)
    decoded, decoded_lengths = self._Translate(
        self.theta, py_utils.NestedMap(
            ids=source * real, segment_ids=real, positions=positions * real))
    return {'default': (
        py_utils.NestedMap(decoded=decoded, decoded_lengths=decoded_lengths),
        py_utils.NestedMap(source=source, source_lengths=lengths))}

  def _Translate(self, theta, source):
    """See greedy_decoding.GreedyDecode."""
    words = self.input.Vocabulary()
    longest = (self.params.decoder_max_length or
               self.input.params.bucket_upper_bound[-1])
    return greedy_decoding.GreedyDecode(
        layers_in_sequence.LayersInSequence(self.pipeline, theta.pipeline),
        source, longest, words.sos, words.eos)

  def CreateDecoderMetrics(self):
    """Of the decoder job: exact matches, and BLEU where it is wanted."""
    metrics = {
        'num_samples_in_batch': lingvo_metrics.AverageMetric(),
        'exact_match': lingvo_metrics.AverageMetric(),
    }
    if self.params.decoder_bleu:
      metrics['corpus_bleu'] = lingvo_metrics.CorpusBleuMetric()
    return metrics

  def PostProcessDecodeOut(self, decode_out_dict, decode_metrics_dict):
    """Adds a batch to the metrics.

    Args:
      decode_out_dict: What DecodeWithTheta returns, as numpy arrays.
      decode_metrics_dict: What CreateDecoderMetrics returns.

    Returns:
      A list of (text of the source, {'reference': text, 'decoded': text}).
    """
    out, metrics = decode_out_dict, decode_metrics_dict
    words = self.input.Vocabulary()
    texts = []
    for i in np.flatnonzero(out.weights):
      target = out.target[i, :out.target_lengths[i]]
      decoded = out.decoded[i, :out.decoded_lengths[i]]
      metrics['exact_match'].Update(float(np.array_equal(decoded, target)))
      source, target, decoded = [
          words.Decode(ids).decode('utf-8', errors='backslashreplace')
          for ids in (out.source[i, :out.source_lengths[i]], target, decoded)
      ]
      if 'corpus_bleu' in metrics:
        metrics['corpus_bleu'].Update(target, decoded)
      texts.append((source, {'reference': target, 'decoded': decoded}))
    metrics['num_samples_in_batch'].Update(len(texts))
    return texts

  def DecodeFinalize(self, decode_finalize_args):
    """Writes the texts, one JSON object a line, to decoder_out_STEP.jsonl."""
    with tf.io.gfile.GFile(
        decode_finalize_args.decode_out_path + '.jsonl', 'w') as f:
      for source, texts in decode_finalize_args.decode_out:
        f.write(json.dumps(dict(source=source, **texts), ensure_ascii=False))
        f.write('\n')


def _IsPair(input_batch):
  """float32 [batch]: 1 for a pair, 0 for what fills the batch up."""
  return input_batch.tgt.weights[:, 0]
