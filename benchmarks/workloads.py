"""The networks that are timed: their sizes, weights and inputs, the same for every implementation.

Nothing here needs TensorFlow or PyTorch. `tf_layers.py` and `torch_layers.py` build the networks.
"""

import dataclasses
import math
import zlib

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
  """A stack of layers, and the mini-batch that one step trains on."""
  name: str
  batch: int  # examples a step
  input_shape: tuple  # of one example; images are [height, width, channels]
  num_layers: int
  first_stage: int  # how many layers the first of two stages holds: half of the work
  num_classes: int = 0  # 0: the loss is the mean square of the outputs, else cross-entropy
  normalises_batch: bool = False  # whether the loss depends on the micro-batches' size

  @property
  def kind(self):
    """The network's name without sizes."""
    return self.name.split(':')[0]

  def Balance(self, stages):
    """How many layers each stage holds, a list; the same number where there are more than two."""
    if stages == 2:
      return [self.first_stage, self.num_layers - self.first_stage]
    ends = [self.num_layers * k // stages for k in range(stages + 1)]
    return [end - start for start, end in zip(ends, ends[1:])]


WORKLOADS = {
    w.name: w for w in [
        # Blocks of two 3x3 convolutions with a shortcut, 64 channels.
        Workload('residual', batch=64, input_shape=(16, 16, 64), num_layers=8, first_stage=4),
        # Stem, 16 bottleneck blocks (ResNet-101: 33), head. The stem keeps the images' size.
        Workload('resnet50', batch=32, input_shape=(32, 32, 3), num_layers=18, first_stage=9, num_classes=10,
                 normalises_batch=True),
        # Is built, and not run.
        Workload('resnet101', batch=32, input_shape=(32, 32, 3), num_layers=35, first_stage=17, num_classes=10,
                 normalises_batch=True),
        # Decoder layers: masked self-attention, attention to the layer's own input, feed-forward.
        # The input is [sequence, dim].
        Workload('transformer', batch=32, input_shape=(128, 256), num_layers=8, first_stage=4),
    ]
}


def Get(name):
  """The Workload of a name: a key of WORKLOADS, or one with sizes.

  Args:
    name: Such as `residual`, `residual:16:512`, 16 of its layers and a batch of 512, or `residual:16:512:6`, where the
      first of two stages holds 6 layers.
  """
  kind, *sizes = name.split(':')
  if not sizes:
    return WORKLOADS[kind]
  num_layers, batch, *first_stage = map(int, sizes)
  return dataclasses.replace(
      WORKLOADS[kind], name=name, num_layers=num_layers, first_stage=(first_stage or [num_layers // 2])[0], batch=batch)


# The Transformer's other sizes.
NUM_HEADS = 8
HIDDEN_DIM = 1024


def Inputs(workload):
  """One mini-batch, float32 [batch, *input_shape]."""
  return np.random.default_rng(0).standard_normal((workload.batch, *workload.input_shape), np.float32)


def Labels(workload):
  """The classes of the mini-batch, int64 [batch]."""
  return np.arange(workload.batch, dtype=np.int64) % max(1, workload.num_classes)


def Initial(name, shape):
  """A variable's first value, which its name decides.

  Args:
    name: Lingvo's name from the layer on, such as block_3/branch/conv0/w.
    shape: Lingvo's shape. Convolutions are [height, width, in, out], projections [in, out], the projections of heads
      [dim, heads, dim of a head].

  Returns:
    A float32 array. Biases are zero, and so are scales, to which Lingvo adds 1.
  """
  kind = name.split('/')[-1]
  if kind == 'moving_variance':
    return np.ones(shape, np.float32)
  if kind != 'w':
    return np.zeros(shape, np.float32)
  fan_in = shape[0] if len(shape) == 3 else math.prod(shape[:-1])
  gain = 2 if len(shape) == 4 else 0.25  # Small for projections, as the Transformer sums many of them.
  values = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
  return (values * math.sqrt(gain / fan_in)).astype(np.float32)
