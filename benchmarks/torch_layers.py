"""The workloads as PyTorch layers, with the variables of Lingvo's under the same names and with the same values.

Images come as [batch, channels, height, width], as is PyTorch's way.
"""

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks import workloads


def _Variable(name, shape):
  """A variable's first value, in Lingvo's shape."""
  return torch.from_numpy(workloads.Initial(name, shape))


class Conv(nn.Module):
  """A convolution without bias whose output is ceil(input / stride) high and wide."""

  def __init__(self, name, size, input_dim, output_dim, stride=1):
    super().__init__()
    w = _Variable(f'{name}/w', (size, size, input_dim, output_dim))
    self.w = nn.Parameter(w.permute(3, 2, 0, 1).contiguous())
    self.size, self.stride = size, stride

  def forward(self, x):
    if self.size == 1 or self.stride == 1:
      return F.conv2d(x, self.w, stride=self.stride, padding=self.size // 2)
    # TensorFlow pads even sizes below and on the right alone.
    return F.conv2d(F.pad(x, (0, 1, 0, 1)), self.w, stride=self.stride)


class BatchNorm(nn.Module):

  def __init__(self, name, dim):
    super().__init__()
    self.scale = nn.Parameter(1 + _Variable(f'{name}/gamma', (dim,)))
    self.shift = nn.Parameter(_Variable(f'{name}/beta', (dim,)))
    self.register_buffer('mean', torch.zeros(dim))
    self.register_buffer('variance', torch.ones(dim))

  def forward(self, x):
    return F.batch_norm(x, self.mean, self.variance, self.scale, self.shift, training=True, momentum=0.001, eps=1e-5)


class ResidualBlock(nn.Module):
  """tf_layers.ResidualBlock."""

  def __init__(self, name, dim):
    super().__init__()
    self.conv0 = Conv(f'{name}/conv0', 3, dim, dim)
    self.conv1 = Conv(f'{name}/conv1', 3, dim, dim)

  def forward(self, x):
    return F.relu(x + 0.1 * self.conv1(F.relu(self.conv0(x))))


class Bottleneck(nn.Module):
  """residual_block.ResidualBlock with its defaults and bottleneck=True."""

  def __init__(self, name, input_dim, dim, stride):
    super().__init__()
    self.shortcut = nn.Identity()
    if stride != 1 or input_dim != 4 * dim:
      self.shortcut = nn.Sequential(
          Conv(f'{name}/shortcut/conv', 1, input_dim, 4 * dim, stride), BatchNorm(f'{name}/shortcut/bn', 4 * dim))
    branch = f'{name}/branch'
    self.branch = nn.Sequential(
        Conv(f'{branch}/conv0', 1, input_dim, dim), BatchNorm(f'{branch}/bn0', dim), nn.ReLU(),
        Conv(f'{branch}/conv1', 3, dim, dim, stride), BatchNorm(f'{branch}/bn1', dim), nn.ReLU(),
        Conv(f'{branch}/conv2', 1, dim, 4 * dim), BatchNorm(f'{branch}/bn2', 4 * dim))

  def forward(self, x):
    return F.relu(self.shortcut(x) + self.branch(x))


class Head(nn.Module):
  """resnet.ResNetHead."""

  def __init__(self, name, input_dim, num_classes):
    super().__init__()
    self.w = nn.Parameter(_Variable(f'{name}/logits/w', (input_dim, num_classes)).T.contiguous())
    self.b = nn.Parameter(_Variable(f'{name}/logits/b', (num_classes,)))

  def forward(self, x):
    return F.linear(x.mean((2, 3)), self.w, self.b)


class LayerNorm(nn.Module):

  def __init__(self, name, dim):
    super().__init__()
    self.scale = nn.Parameter(1 + _Variable(f'{name}/scale', (dim,)))
    self.shift = nn.Parameter(_Variable(f'{name}/bias', (dim,)))

  def forward(self, x):
    return F.layer_norm(x, self.scale.shape, self.scale, self.shift, eps=1e-6)


class Attention(nn.Module):
  """x + attention(layer norm(x), source), Lingvo's TransformerAttentionLayer; [batch, time, dim] in and out."""

  def __init__(self, name, dim, num_heads, is_masked):
    super().__init__()
    self.norm = LayerNorm(f'{name}/atten_ln', dim)
    self.w, self.b = nn.ParameterDict(), nn.ParameterDict()
    for kind in ('query', 'key', 'value', 'post'):
      variable = f'{name}/multihead_atten/{kind}'
      w = _Variable(f'{variable}/w', (dim, num_heads, dim // num_heads)).reshape(dim, dim)
      self.w[kind] = nn.Parameter(w if kind == 'post' else w.T.contiguous())
      self.b[kind] = nn.Parameter(torch.zeros(dim))
    self.per_dim_scale = nn.Parameter(torch.zeros(dim // num_heads))
    self.num_heads, self.is_masked = num_heads, is_masked

  def _Project(self, kind, x):
    return F.linear(x, self.w[kind], self.b[kind])

  def _Heads(self, kind, x):
    """[batch, time, dim] -> [batch, heads, time, dim of a head]."""
    return self._Project(kind, x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

  def forward(self, x, source=None):
    y = self.norm(x)
    source = y if source is None else source
    scale = F.softplus(self.per_dim_scale) * (1.442695041 / len(self.per_dim_scale)**0.5)
    context = F.scaled_dot_product_attention(
        self._Heads('query', y) * scale, self._Heads('key', source), self._Heads('value', source),
        is_causal=self.is_masked, scale=1.)
    return x + self._Project('post', context.transpose(1, 2).flatten(2))


class DecoderLayer(nn.Module):
  """tf_layers.DecoderLayer."""

  def __init__(self, name, dim):
    super().__init__()
    self.self_attention = Attention(f'{name}/multihead_self_atten', dim, workloads.NUM_HEADS, True)
    self.cross_attention = Attention(f'{name}/multihead_cross_atten', dim, workloads.NUM_HEADS, False)
    self.norm = LayerNorm(f'{name}/tr_fflayer/fflayer_ln', dim)
    sizes = [(dim, workloads.HIDDEN_DIM), (workloads.HIDDEN_DIM, dim)]
    self.w = nn.ParameterList(
        _Variable(f'{name}/tr_fflayer/fflayer/fflayer_{i}/w', size).T.contiguous() for i, size in enumerate(sizes))
    self.b = nn.ParameterList(torch.zeros(size[1]) for size in sizes)

  def forward(self, x):
    y = self.cross_attention(self.self_attention(x), x)
    hidden = F.relu(F.linear(self.norm(y), self.w[0], self.b[0]))
    return y + F.linear(hidden, self.w[1], self.b[1])


def Layers(workload):
  """The layers of a workload, a list of modules."""
  dim = workload.input_shape[-1]
  if workload.kind == 'residual':
    return [ResidualBlock(f'block_{i}', dim) for i in range(workload.num_layers)]
  if workload.kind == 'transformer':
    return [DecoderLayer(f'layer_{i}', dim) for i in range(workload.num_layers)]
  layers = [nn.Sequential(Conv('stem/conv', 3, 3, 64), BatchNorm('stem/bn', 64), nn.ReLU())]
  dim = 64
  for group, (num_blocks, width) in enumerate(zip((3, 4, 6, 3), (64, 128, 256, 512))):
    for i in range(num_blocks):
      layers.append(Bottleneck(f'block_{len(layers) - 1}', dim, width, 2 if group > 0 and i == 0 else 1))
      dim = 4 * width
  return layers + [Head('head', dim, workload.num_classes)]


def Inputs(workload):
  """One mini-batch."""
  inputs = torch.from_numpy(workloads.Inputs(workload))
  return inputs.permute(0, 3, 1, 2).contiguous() if inputs.ndim == 4 else inputs


def Labels(workload):
  """The classes of the mini-batch."""
  return torch.from_numpy(workloads.Labels(workload))


def Loss(workload):
  """What takes (outputs, labels) and returns their mean loss."""
  if workload.num_classes:
    return F.cross_entropy
  return lambda outputs, labels: outputs.square().mean()
