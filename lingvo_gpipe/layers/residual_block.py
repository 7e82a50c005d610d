"""The residual block, original and pre-activation, basic and bottleneck.

Sources: 'Deep Residual Learning for Image Recognition' (arXiv 1512.03385),
'Identity Mappings in Deep Residual Networks' (arXiv 1603.05027).
"""

import lingvo.compat as tf
from lingvo.core import base_layer
from lingvo.core import py_utils

from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers.image_layers import Conv
from lingvo_gpipe.layers.image_layers import Relu
from lingvo_gpipe.layers.image_layers import Sequence

VARIANTS = ('original', 'preactivation')
SHORTCUTS = ('projection', 'pad')
_EXPANSION = 4


class ResidualBlock(base_layer.BaseLayer):
  """The sum of a shortcut and a branch of convolutions.

  The branch is two 3x3 convolutions or, a bottleneck, 1x1, 3x3 and 1x1.

    original:
      branch = conv, bn, relu, ..., conv, bn
      y = relu(shortcut(x) + branch(x))
    preactivation:
      h = relu(bn(x))
      branch = conv, bn, relu, ..., conv
      y = shortcut(x or h) + branch(h)

  The shortcut of a pre-activation network's first block begins at h, behind the
  activation that follows the stem (1603.05027, appendix): `activated_shortcut`.

  Where the shape stays, the shortcut is x. Where it changes, `projection` is a
  1x1 convolution, of x and with a bn of its own in the original variant, of h
  in the pre-activation one; `pad` has no parameters: x sampled down, with zeros
  for the new channels (option A of 1512.03385).

  A bottleneck's stride is on its 3x3 convolution, as in most implementations
  (the paper has it on the first 1x1).
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('input_dim', 0, 'Channels of the input.')
    p.Define('dim', 0, 'Channels of the 3x3 convolutions. A bottleneck returns '
             f'{_EXPANSION} times as many.')
    p.Define('stride', 1, 'Stride, in both directions, of the (first) 3x3 '
             'convolution and of the shortcut.')
    p.Define('bottleneck', False, 'Whether the branch is a bottleneck.')
    p.Define('variant', 'original', f'One of {VARIANTS}.')
    p.Define('shortcut', 'projection', f'One of {SHORTCUTS}.')
    p.Define('activated_shortcut', False, 'Pre-activation variant: whether the '
             'shortcut begins at h where it is the identity or pads, too.')
    p.Define('zero_init_residual', False, 'Original variant: the scale of the '
             "branch's last normalisation starts from zero, so that the branch "
             'adds nothing at first (arXiv 1706.02677).')
    p.Define('norm_tpl', image_layers.BatchNorm.Params(), 'Normalisation.')
    return p

  @classmethod
  def OutputDim(cls, p):
    """Channels of the output."""
    return p.dim * (_EXPANSION if p.bottleneck else 1)

  @classmethod
  def _Convolutions(cls, p):
    """Params of the branch's convolutions."""
    output_dim = cls.OutputDim(p)
    if p.bottleneck:
      return [
          Conv('conv0', 1, p.input_dim, p.dim),
          Conv('conv1', 3, p.dim, p.dim, p.stride),
          Conv('conv2', 1, p.dim, output_dim),
      ]
    return [
        Conv('conv0', 3, p.input_dim, p.dim, p.stride),
        Conv('conv1', 3, p.dim, p.dim),
    ]

  @classmethod
  def _Branch(cls, p):
    """Params of the layers of the branch."""
    result = []
    convolutions = cls._Convolutions(p)
    for i, conv in enumerate(convolutions):
      input_dim, output_dim = conv.filter_shape[2:]
      if p.variant == 'preactivation':
        if i > 0:
          result += [cls._Norm(p, f'bn{i}', input_dim), Relu(f'relu{i}')]
        result += [conv]
      else:
        if i > 0:
          result += [Relu(f'relu{i}')]
        result += [conv, cls._Norm(p, f'bn{i}', output_dim)]
    if p.variant == 'original' and p.zero_init_residual:
      result[-1].initial_scale = 0.0
    return result

  @classmethod
  def _Shortcut(cls, p):
    """Params of the layers of the shortcut, an empty list for the identity."""
    output_dim = cls.OutputDim(p)
    if p.stride == 1 and p.input_dim == output_dim:
      return []
    if p.shortcut == 'pad':
      return [
          image_layers.SubsampleAndPad.Params().Set(
              name='pad', input_dim=p.input_dim, output_dim=output_dim,
              stride=p.stride)
      ]
    result = [Conv('conv', 1, p.input_dim, output_dim, p.stride)]
    if p.variant == 'original':
      result += [cls._Norm(p, 'bn', output_dim)]
    return result

  @classmethod
  def _Norm(cls, p, name, dim):
    return p.norm_tpl.Copy().Set(name=name, dim=dim)

  @classmethod
  def _Parts(cls, p):
    """Params of the children, each a sequence."""
    image_layers.CheckOneOf('variant', p.variant, VARIANTS)
    image_layers.CheckOneOf('shortcut', p.shortcut, SHORTCUTS)
    result = []
    if p.variant == 'preactivation':
      norm = cls._Norm(p, 'bn', p.input_dim)
      result += [Sequence('preactivation', [norm, Relu('relu')])]
    shortcut = cls._Shortcut(p)
    if shortcut:
      result += [Sequence('shortcut', shortcut)]
    return result + [Sequence('branch', cls._Branch(p))]

  def __init__(self, params):
    super().__init__(params)
    for part in self._Parts(self.params):
      self.CreateChild(part.name, part)

  def FProp(self, theta, inputs):
    """Runs the block.

    Args:
      theta: A NestedMap of the weights.
      inputs: A float tensor [batch, height, width, input_dim].

    Returns:
      A tensor [batch, ceil(height / stride), ceil(width / stride), output_dim]
      of the same dtype, where output_dim is `OutputDim`.
    """
    p = self.params
    with tf.name_scope(p.name):
      shortcut = inputs
      if p.variant == 'preactivation':
        inputs = self.preactivation.FProp(theta.preactivation, inputs)
        projects = p.shortcut == 'projection' and 'shortcut' in self.children
        if projects or p.activated_shortcut:
          shortcut = inputs
      if 'shortcut' in self.children:
        shortcut = self.shortcut.FProp(theta.shortcut, shortcut)
      outputs = shortcut + self.branch.FProp(theta.branch, inputs)
      return tf.nn.relu(outputs) if p.variant == 'original' else outputs

  @classmethod
  def FPropMeta(cls, p, inputs):
    py_utils.CheckShapes((inputs,))
    metas = [part.cls.FPropMeta(part, inputs) for part in cls._Parts(p)]
    outputs = metas[-1].out_shapes[0]  # The branch's.
    flops = sum(m.flops for m in metas) + outputs.num_elements()
    if p.variant == 'original':
      flops += outputs.num_elements()
    return py_utils.NestedMap(flops=flops, out_shapes=(outputs,))
