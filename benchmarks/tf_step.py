"""One training step of a case, as a TensorFlow graph and session."""

import time

from absl import flags
import lingvo.compat as tf
from lingvo.core import builder_layers
from lingvo.core import cluster_factory
from lingvo.core import gpipe
from lingvo.core import py_utils

from benchmarks import tf_layers
from benchmarks import workloads
import lingvo_gpipe

v1 = tf.compat.v1
_LEARNING_RATE = 1e-6


def Devices(job, stages):
  """CPU devices of one process, a list."""
  return [f'{job}/replica:0/task:0/device:CPU:{k}' for k in range(stages)]


def SessionConfig(cpus):
  """A session with so many CPU devices, whose operators have one thread each."""
  return v1.ConfigProto(device_count={'CPU': cpus}, intra_op_parallelism_threads=1)


def SwitchToGraphs():
  """Makes TensorFlow build graphs, before anything is built."""
  v1.disable_eager_execution()
  v1.disable_control_flow_v2()
  # The peers don't look for NaNs and wrong shapes in each layer.
  flags.FLAGS.mark_as_parsed()
  flags.FLAGS.enable_asserts = False
  flags.FLAGS.enable_check_numerics = False


def Cluster(stages):
  """The Lingvo cluster of a pipeline in one process."""
  return cluster_factory.ForTestingWorker(mode='sync', job='trainer_client', split_size=stages, cpus=stages)


def Network(case, layers, balance, devices):
  """The params of the network as one layer.

  Args:
    case: A Case.
    layers: The params of its layers, a list.
    balance: How many of them each stage holds, a list.
    devices: The stages' devices, a list of names; Lingvo's pipeline takes the cluster's.

  Returns:
    Params of a layer.
  """
  if case.impl == 'none':
    return builder_layers.SequentialLayer.Params().Set(name='net', sub=layers)
  if case.impl == 'lingvo':
    pipeline, stage = gpipe.PipeliningLayer.Params(), gpipe.FeatureExtractionLayer.Params()
  else:
    pipeline = lingvo_gpipe.PipeliningLayer.Params().Set(
        schedule=case.schedule, recompute=case.recompute, stage_devices=devices)
    stage = lingvo_gpipe.FeatureExtractionLayer.Params()
  cells = []
  for k, count in enumerate(balance):
    cells.append(stage.Copy().Set(name=f'stage_{k}', sub=layers[:count]))
    layers = layers[count:]
  return pipeline.Set(name='net', num_micro_batches=case.micro_batches, cell_tpl=cells)


class TrainingStep:
  """The graph of a training step by gradient descent.

  Attributes:
    build_s: Seconds to build it.
  """

  def __init__(self, case, devices):
    """Builds the graph.

    Args:
      case: A Case.
      devices: A device name for each stage.
    """
    SwitchToGraphs()
    self._workload = workload = workloads.Get(case.workload)
    layers = tf_layers.Layers(workload)
    self._layer_names = [l.name for l in layers]
    self._graph = tf.Graph()
    with self._graph.as_default(), Cluster(case.stages):
      with tf.device(devices[0]):
        py_utils.GetOrCreateGlobalStepVar()
        self._inputs = v1.get_variable(
            'inputs', (workload.batch, *workload.input_shape), initializer=v1.zeros_initializer, use_resource=True,
            trainable=False)
      start = time.perf_counter()
      self._net = Network(case, layers, workload.Balance(case.stages), devices).Instantiate()
      self._loss = self._Loss(case, devices[-1])
      variables = v1.trainable_variables()
      grads = tf.gradients(self._loss, variables, colocate_gradients_with_ops=True)
      updates = [self._net.PostTrainingStepUpdate()]
      for variable, grad in zip(variables, grads):
        with tf.device(variable.device):
          updates.append(variable.assign_sub(_LEARNING_RATE * grad))
      self._step = tf.group(*updates)
      self.build_s = time.perf_counter() - start
      self._init = v1.global_variables_initializer()

  def _Loss(self, case, last_device):
    inputs = self._inputs.read_value()
    with tf.device(last_device):
      targets = tf_layers.Targets(self._workload)

    def MetricsFn(unused_theta, outputs, targets):
      return tf_layers.Metrics(self._workload, outputs, targets)

    if case.impl.startswith('gpipe'):
      metrics = self._net.FPropLoss(self._net.theta, MetricsFn, py_utils.NestedMap(), targets, inputs)
    else:
      outputs = self._net.FPropDefaultTheta(inputs)
      with tf.device(last_device):
        metrics = MetricsFn(None, outputs, targets)
    return metrics['loss'][0]

  def NumParams(self):
    """The number of parameters."""
    return sum(v.shape.num_elements() for v in self._net.vars.Flatten())

  def Start(self, target, config):
    """Starts a session and sets the variables.

    Args:
      target: Where it runs, '' for this process.
      config: ConfigProto.

    Returns:
      A function that runs a step and returns [its loss, None].
    """
    session = v1.Session(target, graph=self._graph, config=config)
    session.run(self._init)
    # All at once: each run that fetches something else prepares the graph anew.
    initial = {self._inputs: workloads.Inputs(self._workload)}
    for v in self._net.vars.Flatten():
      initial[v] = workloads.Initial(CommonName(v.name, self._layer_names), v.shape.as_list())
    session.run([v.initializer for v in initial], {v.initializer.inputs[1]: value for v, value in initial.items()})
    with self._graph.as_default():
      return session.make_callable([self._loss, self._step])


def CommonName(variable_name, layer_names):
  """A variable's name from its layer on, whatever wraps the layer."""
  parts = variable_name.split(':')[0].split('/')
  start = next(i for i, part in enumerate(parts) if part in layer_names)
  return '/'.join(parts[start:]).removesuffix('/var')
