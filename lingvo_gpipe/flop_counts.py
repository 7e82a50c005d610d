"""Floating-point operations of TensorFlow's operators.

A multiply-add is 2. An operation on integers is none, and moving data isn't
either. A transcendental function is 1 an element, as in TensorFlow's profiler
(tensorflow/python/profiler), which knows the count of many operators; here are
those that it lacks or gets wrong.
"""

import math

import lingvo.compat as tf

from lingvo_gpipe import lingvo_compat

# Move, make or name data.
FREE = frozenset("""
AssertShapeMatch Bitcast BroadcastArgs BroadcastGradientArgs BroadcastTo Cast
CheckNumerics ConcatOffset ConcatV2 Concat Const DeepCopy DiagPart
DynamicPartition DynamicStitch ParallelDynamicStitch Empty EnsureShape
ExpandDims Fill Gather GatherNd GatherV2 Identity IdentityN InplaceUpdate
InvertPermutation MatrixBandPart MatrixDiag MatrixDiagPart MatrixDiagV3
MatrixDiagPartV3 MirrorPad NoOp OneHot OnesLike Pack Pad PadV2 Placeholder
PlaceholderWithDefault PreventGradient Range Rank ReadVariableOp Reshape
ResourceGather Reverse ReverseSequence ReverseV2 Roll ScatterNd Select SelectV2
Shape ShapeN Size Slice Snapshot SpaceToBatchND BatchToSpaceND SpaceToDepth
DepthToSpace Split SplitV Squeeze StopGradient StridedSlice StridedSliceGrad
TensorListConcatV2 TensorListFromTensor TensorListGather TensorListGetItem
TensorListLength TensorListPopBack TensorListPushBack TensorListReserve
TensorListResize TensorListScatterV2 TensorListSetItem TensorListSplit
TensorListStack EmptyTensorList TensorListElementShape TensorScatterUpdate Tile
Transpose Unique UniqueV2 Unpack VarHandleOp VariableV2 Where ZerosLike
""".split())

# One an element of the output, in place where an input isn't used any more.
ELEMENTWISE = frozenset("""
Abs Acos Add AddV2 Asin Atan Atan2 Ceil Cos Cosh Digamma Div DivNoNan Equal Erf
Erfc Erfinv Exp Expm1 Floor FloorDiv FloorMod Greater GreaterEqual Inv IsFinite
IsInf IsNan Less LessEqual Lgamma Log Log1p Maximum Minimum Mod Mul MulNoNan Neg
NextAfter NotEqual Pow RealDiv Reciprocal Relu ReluGrad Rint Round Rsqrt Sigmoid
Sign Sin Sinh Softplus Sqrt Square Sub Tan Tanh TruncateDiv TruncateMod Xdivy
Xlogy
""".split())

_PER_OUTPUT_ELEMENT = {
    **{name: 1 for name in ELEMENTWISE},
    'ClipByValue': 2,
    'Elu': 2,  # exp and subtraction.
    'EluGrad': 2,
    'InvGrad': 3,
    'LeakyRelu': 2,
    'LeakyReluGrad': 2,
    'LogSoftmax': 5,  # As Softmax.
    'ReciprocalGrad': 3,
    'Relu6': 2,
    'Relu6Grad': 2,
    'RsqrtGrad': 4,  # As TensorFlow.
    'Selu': 3,
    'SeluGrad': 3,
    'SigmoidGrad': 3,  # dy y (1 - y).
    'Softmax': 5,  # As TensorFlow: maximum, subtraction, exp, sum, division.
    'SoftplusGrad': 3,
    'Softsign': 3,  # x / (1 + |x|).
    'SoftsignGrad': 4,
    'SqrtGrad': 2,
    'SquaredDifference': 2,
    'TanhGrad': 3,  # dy (1 - y y).
    # Numbers are drawn as integers, then scaled.
    'RandomStandardNormal': 1,
    'RandomUniform': 1,
    'StatelessRandomNormal': 1,
    'StatelessRandomNormalV2': 1,
    'StatelessRandomUniform': 1,
    'StatelessRandomUniformV2': 1,
    'StatelessTruncatedNormal': 1,
    'StatelessTruncatedNormalV2': 1,
    'TruncatedNormal': 1,
}

_PER_INPUT_ELEMENT = {
    'Cumprod': 1,
    'Cumsum': 1,
    'EuclideanNorm': 2,
    'InplaceAdd': 1,
    'L2Loss': 2,
    'Max': 1,
    'Min': 1,
    'Prod': 1,
    'ResourceScatterAdd': 1,
    'SegmentMax': 1,
    'SegmentSum': 1,
    # Softmax, logarithm, product with the labels, sum; and the gradient, which
    # comes along: probability less label.
    'SoftmaxCrossEntropyWithLogits': 9,
    'SparseSoftmaxCrossEntropyWithLogits': 6,
    'UnsortedSegmentMax': 1,
    'UnsortedSegmentSum': 1,  # The gradient of a gather.
}

# Training: mean 1, variance 3, normalised, scaled and shifted 3.
_BATCH_NORM_TRAINING = 7
# The statistics are folded into the scale and shift.
_BATCH_NORM_INFERENCE = 2
# Gradients of the shift 1, the scale 4, the input 4.
_BATCH_NORM_GRADIENT = 9


def _Size(x):
  """The number of elements of a tensor; None if its shape isn't known."""
  return x.shape.num_elements()


def _Einsum(op):
  inputs, output = op.get_attr('equation').decode().split('->')
  dims = {}
  for term, x in zip(inputs.split(','), op.inputs):
    # An ellipsis stands for the dimensions that have no letter.
    before, _, after = term.partition('...')
    sizes = x.shape.as_list()
    free = len(sizes) - len(before) - len(after)
    labels = list(before)
    if '...' in term:
      labels += [f'.{free - i}' for i in range(free)]
    for label, size in zip(labels + list(after), sizes):
      if size is None:
        return None
      dims[label] = max(size, dims.get(label, 1))
  sums = [d for d in dims if d[0] != '.' and d not in output]
  products = len(op.inputs) - 1
  return math.prod(dims.values()) * (products + bool(sums))


def _BatchMatMul(op):
  # The profiler's count takes a for untransposed.
  shared = op.inputs[0].shape[-2 if op.get_attr('adj_x') else -1]
  return 2 * shared * _Size(op.outputs[0])


def _ConvBackprop(filters):
  """The FLOPs of a convolution's gradients: those of the convolution itself."""

  def Count(op):
    kernel = filters(op)
    return 2 * _Size(op.inputs[2]) * _Size(kernel) // kernel.shape[-1]

  return Count


def _DepthwiseBackprop(filters):

  def Count(op):
    kernel = filters(op)
    return 2 * _Size(op.inputs[2]) * kernel.shape[0] * kernel.shape[1]

  return Count


def _BatchNorm(op):
  training = op.get_attr('is_training')
  return _Size(op.inputs[0]) * (
      _BATCH_NORM_TRAINING if training else _BATCH_NORM_INFERENCE)


def _BatchNormGradient(op):
  return _Size(op.inputs[0]) * _BATCH_NORM_GRADIENT


def _FirstFilter(op):
  return op.inputs[1]


def _FoundFilter(op):
  return op.outputs[0]


_OWN = {
    'BatchMatMul': _BatchMatMul,
    'BatchMatMulV2': _BatchMatMul,
    'BatchMatMulV3': _BatchMatMul,
    'Conv2DBackpropFilter': _ConvBackprop(_FoundFilter),
    'Conv2DBackpropInput': _ConvBackprop(_FirstFilter),
    'Conv3DBackpropFilterV2': _ConvBackprop(_FoundFilter),
    'Conv3DBackpropInputV2': _ConvBackprop(_FirstFilter),
    'DepthwiseConv2dNativeBackpropFilter': _DepthwiseBackprop(_FoundFilter),
    'DepthwiseConv2dNativeBackpropInput': _DepthwiseBackprop(_FirstFilter),
    'Einsum': _Einsum,
    'FusedBatchNorm': _BatchNorm,
    'FusedBatchNormV2': _BatchNorm,
    'FusedBatchNormV3': _BatchNorm,
    'FusedBatchNormGrad': _BatchNormGradient,
    'FusedBatchNormGradV2': _BatchNormGradient,
    'FusedBatchNormGradV3': _BatchNormGradient,
}


def Flops(op):
  """The FLOPs of an operator that calls no function.

  Args:
    op: A tf.Operation.

  Returns:
    A number; None if it isn't known.
  """
  if op.type in FREE or not any(map(_Floating, [*op.inputs, *op.outputs])):
    return 0
  try:
    if op.type in _PER_OUTPUT_ELEMENT:
      return _PER_OUTPUT_ELEMENT[op.type] * _Size(op.outputs[0])
    if op.type in _PER_INPUT_ELEMENT:
      return _PER_INPUT_ELEMENT[op.type] * _Size(op.inputs[0])
    if op.type in _OWN:
      return _OWN[op.type](op)
    return lingvo_compat.ProfilerFlops(op)
  except (TypeError, ValueError):  # A shape isn't known.
    return None


def _Floating(x):
  dtype = tf.as_dtype(x.dtype)
  return dtype.is_floating or dtype.is_complex


def Count(ops, scope):
  """The FLOPs of operators, and of the functions they call.

  Args:
    ops: An iterable of tf.Operation.
    scope: The called_functions.Scope of their graph.

  Returns:
    (FLOPs, a set of the types of operators that aren't counted). A loop whose
    number of iterations isn't known counts as one iteration, and as uncounted;
    of branches, the dearest counts.
  """
  total = 0
  uncounted = set()
  for op in ops:
    calls = scope.Calls(op)
    if calls:
      flops = []
      for call in calls:
        inner, unknown = Count(call.body.operators, call.body)
        uncounted |= unknown
        if inner and call.times is None:
          uncounted.add(op.type)
        flops.append(inner * (1 if call.times is None else call.times))
      total += max(flops)
      continue
    flops = Flops(op)
    if flops is None:
      uncounted.add(op.type)
    else:
      total += flops
  return total, uncounted
