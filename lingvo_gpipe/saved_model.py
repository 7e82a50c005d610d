"""Writes parts of a graph as a SavedModel, with the weights of a checkpoint.

Only what the outputs need is written: no input generator, no optimizer, no
device. The weights go from the checkpoint to the SavedModel without a session.
"""

import collections

import lingvo.compat as tf

from lingvo_gpipe import checkpoint

# Operations that something outside of the graph must be there for: Python, or a
# table or iterator that was initialised.
_NOT_ALONE = ('PyFunc', 'PyFuncStateless', 'EagerPyFunc', 'HashTableV2',
              'MutableHashTableV2', 'IteratorV2', 'AnonymousIteratorV2')
# What is for training or for this machine: the gradient of an operation, which
# is Python, and beside which other one it is placed.
_DROPPED_ATTRIBUTES = ('_gradient_op_type', '_class')

# A part of a graph. `inputs`: {name: placeholder}; `outputs`: {name: tensor}.
Signature = collections.namedtuple('Signature', ['inputs', 'outputs'])


def Save(signatures, saved_names, path, export_dir):
  """Writes a SavedModel.

  Args:
    signatures: {name: Signature}, all of one graph.
    saved_names: {a variable's name in the graph: its name in the checkpoint},
      for those that have another one there.
    path: The checkpoint's path.
    export_dir: The directory of the SavedModel, made here.

  Raises:
    ValueError: a variable isn't in the checkpoint or has another shape there,
      or a part of the graph can't run elsewhere.
  """
  graph_defs = {name: _Needed(s) for name, s in signatures.items()}
  module = tf.Module()
  module.weights = _Weights(graph_defs.values(), saved_names, path)
  tf.saved_model.save(module, export_dir, {
      name: _Function(graph_defs[name], s, module.weights)
      for name, s in signatures.items()
  })


def _Needed(signature):
  """The GraphDef of what the outputs need, and no more."""
  outputs = list(signature.outputs.values())
  graph_def = tf.compat.v1.graph_util.extract_sub_graph(
      outputs[0].graph.as_graph_def(), [x.op.name for x in outputs])
  for node in graph_def.node:
    node.device = ''
    for name in _DROPPED_ATTRIBUTES:
      node.attr.pop(name, None)
  # Functions stay as they are: TensorFlow knows them by name.
  functions = {f.signature.name: f for f in graph_def.library.function}
  called = {}
  nodes = list(graph_def.node)
  for node in nodes:  # They become more on the way.
    _CheckRunsAlone(node, functions)
    names = [node.op]
    for value in node.attr.values():
      names += [f.name for f in (value.func, *value.list.func)]
    for name in set(names).intersection(functions).difference(called):
      called[name] = functions[name]
      nodes.extend(functions[name].node_def)
  graph_def.library.CopyFrom(
      type(graph_def.library)(function=called.values()))
  return graph_def


def _CheckRunsAlone(node, functions):
  # tf.raw_ops has TensorFlow's own operations, and not Lingvo's.
  known = hasattr(tf.raw_ops, node.op) or node.op in functions
  if node.op in _NOT_ALONE or not known:
    raise ValueError(
        f'The op {node.name!r} is a {node.op}, which TensorFlow alone cannot '
        "run. Leave it out of what the task's Inference gives: let an input "
        'take what it makes.')


def _Weights(graph_defs, saved_names, path):
  """Returns {name: tf.Variable} of the variables in some GraphDefs."""
  shapes = {
      node.name: tf.TensorShape(node.attr['shape'].shape)
      for graph_def in graph_defs
      for node in graph_def.node
      if node.op == 'VarHandleOp'
  }
  names = {name: saved_names.get(name, name) for name in shapes}
  checkpoint.Check(path, {names[name]: shape for name, shape in shapes.items()})
  reader = tf.train.load_checkpoint(path)
  return {
      name: tf.Variable(reader.get_tensor(saved), trainable=False, name=name)
      for name, saved in names.items()
  }


def _Function(graph_def, signature, weights):
  """A graph of TensorFlow 2 that runs a GraphDef.

  Args:
    graph_def: What _Needed gives.
    signature: The Signature.
    weights: {name in the GraphDef: tf.Variable}; there may be more.

  Returns:
    A ConcreteFunction: inputs as keyword arguments -> {name: output}.
  """
  inputs = {x.op.name: name for name, x in signature.inputs.items()}
  ops = [n.name for n in graph_def.node]
  body = type(graph_def)(
      node=[n for n in graph_def.node
            if n.name not in inputs and n.name not in weights],
      library=graph_def.library, versions=graph_def.versions)

  @tf.function(autograph=False)
  def Run(**tensors):
    given = {f'{op}:0': tensors[inputs[op]] for op in ops if op in inputs}
    # A variable's handle becomes one more input of the function.
    given.update({f'{op}:0': tf.convert_to_tensor(weights[op].handle)
                  for op in ops if op in weights})
    outputs = tf.graph_util.import_graph_def(
        body, input_map=given, name='',
        return_elements=[x.name for x in signature.outputs.values()])
    return dict(zip(signature.outputs, outputs))

  return Run.get_concrete_function(**{
      name: tf.TensorSpec(x.shape, x.dtype, name)
      for name, x in signature.inputs.items()
  })
