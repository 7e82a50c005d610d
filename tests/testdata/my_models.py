"""Models of one's own, as they stand in a file outside of the repository: points to be told apart by their side."""
from lingvo import model_registry
import lingvo.compat as tf
from lingvo.core import base_input_generator
from lingvo.core import base_model
from lingvo.core import base_model_params
from lingvo.core import layers
from lingvo.core import metrics
from lingvo.core import optimizer
from lingvo.core import py_utils
from lingvo.core import schedule
import numpy as np

from lingvo_gpipe import pipelining_layer


class Points(base_input_generator.BaseInputGenerator):
  """64 points, x: [batch, 4], and the side of a plane on which they lie, label: [batch]."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('repeat', True, 'Whether to go on from the first point after the last.')
    p.batch_size = 8
    p.resettable = True
    return p

  def __init__(self, params):
    super().__init__(params)
    x = np.random.RandomState(0).uniform(-1, 1, [64, 4]).astype(np.float32)
    dataset = tf.data.Dataset.from_tensor_slices((x, (x.sum(axis=1) > 0).astype(np.int64)))
    if self.params.repeat:
      dataset = dataset.repeat()
    dataset = dataset.batch(self.params.batch_size, drop_remainder=True)
    self._iterator = tf.data.make_initializable_iterator(dataset)

  def Initialize(self, sess):
    super().Initialize(sess)
    self.Reset(sess)

  def Reset(self, sess):
    sess.run(self._iterator.initializer)

  def _InputBatch(self):
    x, label = self._iterator.get_next()
    return py_utils.NestedMap(x=x, label=label)


class Classifier(base_model.BaseTask):
  """Tells points apart with a pipeline of layers."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('pipeline', pipelining_layer.PipeliningLayer.Params(), 'The layers, from points to logits.')
    return p

  def __init__(self, params):
    super().__init__(params)
    self.CreateChild('pipeline', self.params.pipeline)

  def ComputePredictions(self, theta, input_batch):
    return self.pipeline.FProp(theta.pipeline, input_batch.x)

  def ComputeLoss(self, theta, predictions, input_batch):
    loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=input_batch.label, logits=predictions))
    right = tf.equal(tf.argmax(predictions, axis=-1), input_batch.label)
    weight = tf.cast(tf.shape(predictions)[0], tf.float32)
    return dict(loss=(loss, weight), accuracy=(tf.reduce_mean(tf.cast(right, tf.float32)), weight)), {}


@model_registry.RegisterSingleTaskModel
class Small(base_model_params.SingleTaskModelParams):
  """Four layers that tell points apart."""

  def Train(self):
    return Points.Params()

  def Test(self):
    return Points.Params().Set(repeat=False)

  def Task(self):
    p = Classifier.Params().Set(name='small')
    sizes = [4, 16, 16, 16, 2]
    p.pipeline.Set(
        name='pipeline', num_micro_batches=4, layers=[
            layers.FCLayer.Params().Set(
                name=f'fc{i}', input_dim=sizes[i], output_dim=sizes[i + 1], activation='NONE' if i == 3 else 'RELU')
            for i in range(4)])
    p.train.optimizer = optimizer.Adam.Params()
    p.train.learning_rate = 0.05
    p.train.lr_schedule = schedule.Constant.Params()
    p.train.max_steps = 8
    p.eval.samples_per_summary = 0  # All of them.
    return p


@model_registry.RegisterSingleTaskModel
class Planned(Small):
  """Its input shapes are known, so a plan can be made."""

  def Task(self):
    p = super().Task()
    p.pipeline.input_shapes = [[8, 4]]
    return p


@model_registry.RegisterSingleTaskModel
class Unpipelined(Small):
  """The same without a pipeline."""

  def Task(self):
    p = super().Task()
    p.pipeline = layers.FCLayer.Params().Set(name='fc', input_dim=4, output_dim=2, activation='NONE')
    return p


@model_registry.RegisterSingleTaskModel
class OddTest(Small):
  """Its test batch can't be split as its training batch can."""

  def Test(self):
    return super().Test().Set(batch_size=7)


@model_registry.RegisterSingleTaskModel
class Ends(Small):
  """Its training data ends before its training does."""

  def Train(self):
    return super().Train().Set(repeat=False)

  def Task(self):
    p = super().Task()
    p.train.max_steps = 20
    return p


@model_registry.RegisterSingleTaskModel
class Wider(Small):
  """Its checkpoints aren't those of Small, though the variables' names are."""

  def Task(self):
    p = super().Task()
    p.pipeline.layers[2].output_dim = 20
    p.pipeline.layers[3].input_dim = 20
    return p


class Decoder(Classifier):
  """Its decoding says how often it is right, too."""

  def DecodeWithTheta(self, theta, input_batch):
    predictions = self.ComputePredictions(theta, input_batch)
    return py_utils.NestedMap(right=tf.equal(tf.argmax(predictions, axis=-1), input_batch.label))

  def CreateDecoderMetrics(self):
    return {name: metrics.AverageMetric() for name in ('num_samples_in_batch', 'accuracy')}

  def PostProcessDecodeOut(self, decode_out_dict, decode_metrics_dict):
    right = decode_out_dict.right
    decode_metrics_dict['num_samples_in_batch'].Update(len(right))
    decode_metrics_dict['accuracy'].Update(right.mean(), len(right))
    return [(str(i), str(r)) for i, r in enumerate(right)]


@model_registry.RegisterSingleTaskModel
class Decodes(Small):
  """Its task can be decoded."""

  def Task(self):
    return super().Task().Set(cls=Decoder)
