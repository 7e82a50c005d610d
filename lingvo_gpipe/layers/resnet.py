"""Residual networks as a list of layers, ready to be cut into stages.

`ResNetLayers(depth, num_classes)` is the whole network, from the image to the
logits: a stem, one layer a residual block, a head. Each takes one tensor and
returns one, so a pipeline may be cut between any two of them.

Sources: 'Deep Residual Learning for Image Recognition' (arXiv 1512.03385),
table 1 and section 4.2; 'Identity Mappings in Deep Residual Networks' (arXiv
1603.05027).
"""

import dataclasses

from lingvo_gpipe.layers import image_layers
from lingvo_gpipe.layers import residual_block


class ResNetStem(image_layers.Unit):
  """From the image to the first block.

  Large images: a 7x7 convolution and a 3x3 max pooling, each of stride 2, so
  [batch, height, width, input_dim] -> [batch, height / 4, width / 4,
  output_dim]. Small ones: one 3x3 convolution that keeps height and width.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('input_dim', 3, 'Channels of the image.')
    p.Define('output_dim', 64, 'Channels of the output.')
    p.Define('small_images', False, 'Whether images are too small to be '
             'sampled down here.')
    p.Define('variant', 'original', f'One of {residual_block.VARIANTS}. The '
             'original one normalises here, the other in the first block.')
    p.Define('norm_tpl', image_layers.BatchNorm.Params(), 'Normalisation.')
    return p

  @classmethod
  def Layers(cls, p):
    size, stride = (3, 1) if p.small_images else (7, 2)
    result = [
        image_layers.Conv('conv', size, p.input_dim, p.output_dim, stride)
    ]
    if p.variant == 'original':
      result += [
          p.norm_tpl.Copy().Set(name='bn', dim=p.output_dim),
          image_layers.Relu('relu')
      ]
    if not p.small_images:
      result += [
          image_layers.MaxPool.Params().Set(
              name='pool', window_shape=(3, 3), window_stride=(2, 2))
      ]
    return result


class ResNetHead(image_layers.Unit):
  """From the last block to the logits.

  [batch, height, width, input_dim] -> [batch, num_classes].
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define('input_dim', 0, 'Channels of the input.')
    p.Define('num_classes', 0, 'Classes.')
    p.Define('variant', 'original', f'One of {residual_block.VARIANTS}. The '
             'pre-activation one normalises once more here.')
    p.Define('norm_tpl', image_layers.BatchNorm.Params(), 'Normalisation.')
    return p

  @classmethod
  def Layers(cls, p):
    result = []
    if p.variant == 'preactivation':
      result += [
          p.norm_tpl.Copy().Set(name='bn', dim=p.input_dim),
          image_layers.Relu('relu')
      ]
    return result + [
        image_layers.GlobalAveragePool.Params().Set(name='pool'),
        image_layers.Projection.Params().Set(
            name='logits', input_dim=p.input_dim, output_dim=p.num_classes),
    ]


@dataclasses.dataclass(frozen=True)
class ResNetConfig:
  """The shape of a residual network."""
  # Blocks in each group. Every group but the first halves height and width.
  num_blocks: tuple
  # Channels of each group's 3x3 convolutions.
  widths: tuple
  bottleneck: bool = False
  # For images of about 32x32: the stem keeps their size.
  small_images: bool = False
  shortcut: str = 'projection'

  def __post_init__(self):
    if len(self.num_blocks) != len(self.widths):
      raise ValueError(
          f'There are {len(self.num_blocks)} groups of blocks, num_blocks='
          f'{self.num_blocks}, but {len(self.widths)} widths={self.widths}. '
          'Give one width a group.')


def _LargeImages(num_blocks, bottleneck):
  return ResNetConfig(num_blocks, (64, 128, 256, 512), bottleneck)


def _SmallImages(depth):
  return ResNetConfig(((depth - 2) // 6,) * 3, (16, 32, 64),
                      small_images=True, shortcut='pad')


# By depth: the number of layers with weights, shortcuts aside.
CONFIGS = {
    18: _LargeImages((2, 2, 2, 2), False),
    34: _LargeImages((3, 4, 6, 3), False),
    50: _LargeImages((3, 4, 6, 3), True),
    101: _LargeImages((3, 4, 23, 3), True),
    152: _LargeImages((3, 8, 36, 3), True),
    **{depth: _SmallImages(depth) for depth in (8, 14, 20, 32, 44, 56, 110)},
}


def Config(depth, **overrides):
  """The ResNetConfig of a depth in CONFIGS, with fields changed.

  Args:
    depth: A key of CONFIGS, or a ResNetConfig.
    **overrides: Fields of ResNetConfig to change, `widths=(32, 64, 128)` say.

  Returns:
    A ResNetConfig.

  Raises:
    ValueError: unknown depth, or overrides that contradict each other.
  """
  if not isinstance(depth, ResNetConfig):
    if depth not in CONFIGS:
      raise ValueError(
          f'No ResNet of depth {depth!r} is known. Known depths are '
          f'{", ".join(map(str, sorted(CONFIGS)))}; pass a ResNetConfig for '
          'any other.')
    depth = CONFIGS[depth]
  return dataclasses.replace(depth, **overrides)


def ResNetLayers(depth, num_classes, input_dim=3, variant='original',
                 norm_tpl=None, zero_init_residual=False, **overrides):
  """The layers of a residual network, to be run in sequence.

  Args:
    depth: A key of CONFIGS: 18, 34, 50, 101, 152 for large images (224x224), 8,
      14, 20, 32, 44, 56, 110 for small ones (32x32). Or a ResNetConfig.
    num_classes: Classes.
    input_dim: Channels of the image.
    variant: 'original' or 'preactivation'.
    norm_tpl: Params of the normalisation, `image_layers.BatchNorm` by default.
    zero_init_residual: See ResidualBlock.
    **overrides: Fields of ResNetConfig to change.

  Returns:
    A list of layer params: stem, block_0, block_1, ..., head. The first takes
    images [batch, height, width, input_dim], the last returns logits
    [batch, num_classes].

  Raises:
    ValueError: unknown depth or variant, or overrides that contradict each
      other.
  """
  image_layers.CheckOneOf('variant', variant, residual_block.VARIANTS)
  config = Config(depth, **overrides)
  common = dict(
      variant=variant, norm_tpl=norm_tpl or image_layers.BatchNorm.Params())

  dim = config.widths[0]
  stem = ResNetStem.Params().Set(
      name='stem', input_dim=input_dim, output_dim=dim,
      small_images=config.small_images, **common)
  blocks = []
  for group, (num_blocks, width) in enumerate(
      zip(config.num_blocks, config.widths)):
    for i in range(num_blocks):
      blocks.append(
          residual_block.ResidualBlock.Params().Set(
              name=f'block_{len(blocks)}',
              input_dim=dim,
              dim=width,
              stride=2 if group > 0 and i == 0 else 1,
              bottleneck=config.bottleneck,
              shortcut=config.shortcut,
              zero_init_residual=zero_init_residual,
              activated_shortcut=not blocks,
              **common))
      dim = residual_block.ResidualBlock.OutputDim(blocks[-1])
  head = ResNetHead.Params().Set(
      name='head', input_dim=dim, num_classes=num_classes, **common)
  return [stem, *blocks, head]
