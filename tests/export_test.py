"""A model trained in two stages, exported, and used by TensorFlow alone: it says what Lingvo's evaluation says."""
import os
import re
import subprocess
import sys
import textwrap

import lingvo.compat as tf
from lingvo.core import cluster_factory
import numpy as np
import pytest
import scipy.special

from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.launcher import models
from tests import launcher_process

_TESTDATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'testdata')
_CLASSIFIER, _LANGUAGE_MODEL, _TRANSLATOR = [
    f'tiny_models.{name}' for name in ('Classifier', 'LanguageModel', 'Translator')]

# What serves a model: MODEL INPUTS OUTPUTS, the last two files of numpy's.
_SERVER = textwrap.dedent("""
    import sys
    import numpy as np
    import tensorflow as tf
    model = tf.saved_model.load(sys.argv[1])
    serve = model.signatures['serving_default']
    outputs = serve(**{k: tf.constant(v) for k, v in np.load(sys.argv[2]).items()})
    np.savez(sys.argv[3], **outputs)
    graph_def = serve.graph.as_graph_def()
    nodes = list(graph_def.node) + [n for f in graph_def.library.function for n in f.node_def]
    assert not [n.name for n in nodes if n.device]
    assert not [m for m in sys.modules if m.startswith('lingvo')]
""")


@pytest.fixture(scope='module')
def launcher():
  process = launcher_process.LauncherProcess(_TESTDATA)
  yield process
  process.Close()


def _Export(launcher, model, folder, *flags):
  """Exports to FOLDER/out; returns what the command prints."""
  result = launcher.Run(f'--model={model}', f'--export_dir={folder}/out', *flags, command='export')
  assert result.code == 0 and not result.err, result
  return result.out


def _Serve(folder, **inputs):
  """Has a process that knows nothing but TensorFlow run the model in FOLDER/out; returns {name: array}."""
  model, *files = [os.path.join(folder, name) for name in ('out', 'inputs.npz', 'outputs.npz')]
  np.savez(files[0], **inputs)
  env = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
  subprocess.run([sys.executable, '-c', _SERVER, model, *files], cwd=folder, env=env, check=True)
  return dict(np.load(files[1]))


@pytest.fixture(name='params')
def _Params(monkeypatch):
  """Returns a model's params for a dataset."""
  monkeypatch.syspath_prepend(_TESTDATA)

  def Params(model, dataset):
    models.Import(model)
    return lingvo_compat.ModelRegistry().GetParams(model, dataset)

  return Params


def _Initialise(devices, params, path):
  """Saves the weights with which a model of two stages begins."""
  params.task.pipeline.num_stages = 2
  with tf.Graph().as_default() as graph, devices.Cluster(2):
    graph.seed = 1
    params.Instantiate()
    init, saver = tf.global_variables_initializer(), tf.train.Saver()
    with devices.Session(graph, 2) as session:
      session.run(init)
      saver.save(session, path)


def _Evaluate(params, checkpoint, fetches_fn):
  """Runs a model as the evaler builds it.

  Args:
    params: The model's params.
    checkpoint: The checkpoint's path.
    fetches_fn: (task, input_batch) -> what is to be fetched.

  Returns:
    (input_batch, fetches), as arrays.
  """
  with tf.Graph().as_default(), cluster_factory.ForTestingWorker(mode='sync', job='evaler', do_eval=True):
    task = params.Instantiate().GetTask()
    batch = task.input.GetPreprocessedInputBatch()
    fetches = fetches_fn(task, batch)
    saver = tf.train.Saver()
    with tf.Session() as session:
      saver.restore(session, checkpoint)
      task.input.Initialize(session)
      return session.run([batch, fetches])


def _Predictions(task, batch):
  return task.ComputePredictions(task.theta, batch).outputs


def testClassifier(launcher, params, tmp_path):
  """Trained in two stages; with the averages of its weights."""
  result = launcher.Run(
      f'--model={_CLASSIFIER}', f'--logdir={tmp_path}', '--num_stages=2', '--noeval_at_end',
      '--model_params_override=train.max_steps:2')
  assert result.code == 0, result
  checkpoint = f'{tmp_path}/train/ckpt-00000002'
  out = _Export(launcher, _CLASSIFIER, tmp_path, f'--logdir={tmp_path}')
  assert out.splitlines() == [
      f'{checkpoint} of {_CLASSIFIER} is in {tmp_path}/out',
      'serving_default',
      '  takes  image float32 [?, 8, 8, 1]',
      '  gives  logits float32 [?, 10], prediction int64 [?], probs float32 [?, 10]']
  batch, logits = _Evaluate(params(_CLASSIFIER, 'Test'), checkpoint, _Predictions)
  served = _Serve(tmp_path, image=batch.image[:5])
  np.testing.assert_allclose(served['logits'], logits[:5], rtol=1e-5, atol=1e-6)
  np.testing.assert_allclose(served['probs'], scipy.special.softmax(logits[:5], -1), rtol=1e-5)
  np.testing.assert_array_equal(served['prediction'], logits[:5].argmax(-1))
  saved = tf.train.load_checkpoint(checkpoint)
  name = 'resnet/head/logits/w/var'
  assert (saved.get_tensor(name) != saved.get_tensor(f'{name}/ExponentialMovingAverage')).any()


def testLanguageModel(launcher, devices, params, tmp_path):
  """The likelihood of each token of a row's first text is that of evaluation."""
  checkpoint = f'{tmp_path}/ckpt'
  _Initialise(devices, params(_LANGUAGE_MODEL, 'Train'), checkpoint)
  _Export(launcher, _LANGUAGE_MODEL, tmp_path, f'--checkpoint={checkpoint}')
  batch, loss = _Evaluate(params(_LANGUAGE_MODEL, 'Test'), checkpoint, _Predictions)
  ids, labels, loss = batch.ids[:1, :20], batch.labels[:1, :20], loss[:1, :20]
  served = _Serve(tmp_path, ids=ids)
  assert served['logits'].shape == (1, 20, 259)
  np.testing.assert_allclose(
      served['log_probs'], scipy.special.log_softmax(served['logits'], -1), rtol=1e-5, atol=1e-6)
  likelihood = np.take_along_axis(served['log_probs'], labels[..., None], -1)[..., 0]
  np.testing.assert_allclose(-likelihood, loss, rtol=1e-5, atol=1e-6)


def testTranslator(launcher, devices, params, tmp_path):
  """Of fewer and shorter sources, with anything behind their ends."""
  checkpoint = f'{tmp_path}/ckpt'
  _Initialise(devices, params(_TRANSLATOR, 'Train'), checkpoint)
  _Export(launcher, _TRANSLATOR, tmp_path, f'--checkpoint={checkpoint}')
  batch, decoded = _Evaluate(
      params(_TRANSLATOR, 'Test'), checkpoint, lambda task, batch: task.DecodeWithTheta(task.theta, batch))
  real = batch.src.segment_ids
  rows = np.flatnonzero(real.sum(-1) <= 4)
  assert 0 < len(rows) < len(real)
  served = _Serve(
      tmp_path, source=np.where(real, batch.src.ids, 77)[rows, :4], source_lengths=real.sum(-1)[rows].astype(np.int32))
  np.testing.assert_array_equal(served['decoded'], decoded.decoded[rows])
  np.testing.assert_array_equal(served['decoded_lengths'], decoded.decoded_lengths[rows])
  assert served['decoded'].any()


def testRefusals(launcher, devices, params, tmp_path):
  _Initialise(devices, params(_TRANSLATOR, 'Train'), f'{tmp_path}/translator')
  result = launcher.Run(
      '--model=my_models.Small', f'--logdir={tmp_path}', '--noeval_at_end', '--model_params_override=train.max_steps:1')
  assert result.code == 0, result
  flags = ['--model=my_models.Small', f'--logdir={tmp_path}', f'--export_dir={tmp_path}/out']
  for other, message in [
      ([], "my_models.Small can't be exported, since its task says nothing of what goes in"),
      (['--export_dir='], 'There is no --export_dir'),
      ([f'--export_dir={tmp_path}'], 'exists already'),
      (['--model=tiny_models.Translator', f'--checkpoint={tmp_path}/translator', '--export_dir=/proc/none'],
       "--export_dir=/proc/none can't be written"),
      (['--logdir='], 'There is no --logdir'),
      ([f'--logdir={tmp_path}/none'], f'There is no checkpoint in {tmp_path}/none/train.'),
      ([f'--checkpoint={tmp_path}/none'], 'none.index does not exist'),
      (['--model=my_models.Nope'], 'There is no model my_models.Nope.'),
      ([f'--model={_CLASSIFIER}'], 'is not of this model: the variable resnet/'),
  ]:
    result = launcher.Run(*flags, *other, command='export')
    assert result.code == 2 and result.err.startswith('error: ') and 'Traceback' not in result.err, result
    assert message in re.sub(r'\s+', ' ', result.err), result.err


if __name__ == '__main__':
  sys.exit(pytest.main([__file__] + sys.argv[1:]))
