"""The workloads as Lingvo layers."""

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import batch_major_attention
from lingvo.core import py_utils

from benchmarks import workloads
from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers import resnet
from lingvo_gpipe.layers import transformer


class ResidualBlock(base_layer.BaseLayer):
  """relu(x + 0.1 conv(relu(conv(x)))) of 3x3 convolutions; [batch, height, width, dim] in and out."""

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('dim', 0, 'Channels.')
    return p

  def __init__(self, params):
    super().__init__(params)
    for name in ('conv0', 'conv1'):
      self.CreateChild(name, image_layers.Conv(name, 3, self.params.dim, self.params.dim))

  def FProp(self, theta, inputs):
    hidden = tf.nn.relu(self.conv0.FProp(theta.conv0, inputs))
    return tf.nn.relu(inputs + 0.1 * self.conv1.FProp(theta.conv1, hidden))

  @classmethod
  def FPropMeta(cls, p, inputs):
    return py_utils.NestedMap(flops=36 * p.dim * inputs.num_elements(), out_shapes=(inputs,))


class DecoderLayer(batch_major_attention.TransformerDecoderLayer):
  """Lingvo's decoder layer with one input, which it also attends to as the source; [batch, time, dim].

  Its products are on matrices of all tokens (layers/transformer.py), for whoever runs it.
  """

  def FProp(self, theta, inputs):
    paddings = tf.zeros(inputs.shape[:2])
    return super().FProp(theta, inputs, paddings, inputs, paddings)[0]

  @classmethod
  def FPropMeta(cls, p, inputs):
    return py_utils.NestedMap(flops=inputs.num_elements(), out_shapes=(inputs,))  # All of them weigh the same.


def Layers(workload):
  """The params of a workload's layers, a list."""
  if workload.kind == 'residual':
    return [
        ResidualBlock.Params().Set(name=f'block_{i}', dim=workload.input_shape[-1]) for i in range(workload.num_layers)
    ]
  if workload.kind.startswith('resnet'):
    return resnet.ResNetLayers(int(workload.kind.removeprefix('resnet')), workload.num_classes, small_images=True)
  dim = workload.input_shape[-1]
  layers = []
  for i in range(workload.num_layers):
    p = DecoderLayer.Params().Set(
        name=f'layer_{i}', input_dim=dim, output_dim=dim, num_heads=workloads.NUM_HEADS)
    p.tr_atten_tpl.hidden_dim = dim
    p.tr_atten_tpl.atten_tpl.proj_tpl = transformer.HeadsProjectionLayer.Params()
    p.tr_fflayer_tpl = transformer.FeedForwardLayer.Params().Set(hidden_dim=workloads.HIDDEN_DIM)
    for tpl in (p.tr_atten_tpl, p.tr_fflayer_tpl):
      tpl.ln_tpl = transformer.LayerNorm()
    layers.append(p)
  return layers


def Targets(workload):
  """What the loss needs besides the outputs."""
  return py_utils.NestedMap(labels=tf.constant(workloads.Labels(workload)))


def Metrics(workload, outputs, targets):
  """The mean loss of some examples, and their number: {'loss': (value, weight)}, scalars."""
  if workload.num_classes:
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=targets.labels, logits=outputs)
  else:
    loss = tf.square(outputs)
  return {'loss': (tf.reduce_mean(loss), tf.cast(tf.shape(targets.labels)[0], tf.float32))}
