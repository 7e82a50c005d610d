"""The worker of the TensorFlow implementations: no pipeline, this project, and lingvo.core.gpipe.

  python -m benchmarks.tf_worker '["residual", "gpipe", "gpipe", "always", 2, 8]'
"""

import json
import sys
import time

from benchmarks import cases
from benchmarks import worker
from benchmarks import workloads

_LEARNING_RATE = 1e-6


def _Net(case, layers, balance):
  """The params of the network as one layer."""
  # pylint: disable=g-import-not-at-top
  from lingvo.core import builder_layers
  if case.impl == 'none':
    return builder_layers.SequentialLayer.Params().Set(name='net', sub=layers)
  if case.impl == 'lingvo':
    from lingvo.core import gpipe
    pipeline = gpipe.PipeliningLayer.Params()
    stage = gpipe.FeatureExtractionLayer.Params()
  else:
    import lingvo_gpipe
    pipeline = lingvo_gpipe.PipeliningLayer.Params().Set(recompute=case.recompute)
    stage = lingvo_gpipe.FeatureExtractionLayer.Params()
  cells = []
  for k, count in enumerate(balance):
    cells.append(stage.Copy().Set(name=f'stage_{k}', sub=layers[:count]))
    layers = layers[count:]
  return pipeline.Set(name='net', num_micro_batches=case.micro_batches, cell_tpl=cells)


def CommonName(variable_name, layer_names):
  """A variable's name from its layer on, whatever wraps the layer."""
  parts = variable_name.split(':')[0].split('/')
  start = next(i for i, part in enumerate(parts) if part in layer_names)
  return '/'.join(parts[start:]).removesuffix('/var')


class _Trainer(worker.Trainer):
  """One session and its training step."""

  def __init__(self, case):
    worker.Pin(0, case.stages)
    # pylint: disable=g-import-not-at-top
    from absl import flags
    import lingvo.compat as tf
    from lingvo.core import cluster_factory
    from lingvo.core import py_utils
    from benchmarks import tf_layers
    v1 = tf.compat.v1
    v1.disable_eager_execution()
    v1.disable_control_flow_v2()
    # The peers don't look for NaNs and wrong shapes in each layer.
    flags.FLAGS.mark_as_parsed()
    flags.FLAGS.enable_asserts = False
    flags.FLAGS.enable_check_numerics = False

    workload = workloads.WORKLOADS[case.workload]
    layers = tf_layers.Layers(workload)
    layer_names = [l.name for l in layers]
    devices = [f'/job:localhost/replica:0/task:0/device:CPU:{k}' for k in range(case.stages)]
    cluster = cluster_factory.ForTestingWorker(
        mode='sync', job='trainer_client', split_size=case.stages, cpus=case.stages)
    graph = tf.Graph()
    with graph.as_default(), cluster:
      with tf.device(devices[0]):
        py_utils.GetOrCreateGlobalStepVar()
        inputs = v1.get_variable(
            'inputs', initializer=workloads.Inputs(workload), use_resource=True, trainable=False)
      start = time.perf_counter()
      net = _Net(case, layers, workload.Balance(case.stages)).Instantiate()
      outputs = net.FPropDefaultTheta(inputs.read_value())
      with tf.device(devices[-1]):
        loss = tf_layers.Loss(workload, outputs)
      variables = v1.trainable_variables()
      grads = tf.gradients(loss, variables, colocate_gradients_with_ops=True)
      updates = [net.PostTrainingStepUpdate()]
      for variable, grad in zip(variables, grads):
        with tf.device(variable.device):
          updates.append(variable.assign_sub(_LEARNING_RATE * grad))
      step = tf.group(*updates)
      self.build_s = time.perf_counter() - start
      init = v1.global_variables_initializer()
    session = v1.Session(
        graph=graph,
        config=v1.ConfigProto(device_count={'CPU': case.stages}, intra_op_parallelism_threads=1))
    session.run(init)
    # All at once: each run that fetches something else prepares the graph anew.
    initial = {
        v.initializer.inputs[1]: workloads.Initial(CommonName(v.name, layer_names), v.shape.as_list())
        for v in net.vars.Flatten()
    }
    session.run([v.initializer for v in net.vars.Flatten()], initial)
    with graph.as_default():
      self._run = session.make_callable([loss, step])

  def Step(self):
    return float(self._run()[0])


if __name__ == '__main__':
  worker.Serve(lambda: _Trainer(cases.Case(*json.loads(sys.argv[1]))))
