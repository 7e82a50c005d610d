"""Runs the jobs that the command line asks for: Lingvo's RunnerManager, on a pipeline's devices."""
import os
import shlex
import sys

from absl import flags
from lingvo import base_trial
from lingvo import trainer as lingvo_trainer
import lingvo.compat as tf
from lingvo.core import py_utils

from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.launcher import checkpoint_jobs
from lingvo_gpipe.launcher import launcher_flags
from lingvo_gpipe.launcher import models
from lingvo_gpipe.launcher import pipelines
from lingvo_gpipe.launcher import quiet
from lingvo_gpipe.launcher import runners
from lingvo_gpipe.launcher import stage_devices
from lingvo_gpipe.launcher import stage_table
from lingvo_gpipe.launcher import stop_signals
from lingvo_gpipe.launcher import user_errors

FLAGS = flags.FLAGS


class RunnerManager(lingvo_trainer.RunnerManager):
  """Lingvo's RunnerManager with the flags, devices and manners of this launcher.

  What Lingvo offers beside training (--mode=inspect_model and the like, eager mode, TPUs) is left to it.
  """
  Controller = runners.Controller
  model_registry = lingvo_compat.ModelRegistry()

  def __init__(self, model):
    super().__init__(model)
    self._stage_devices = []
    self._one_micro_batch_in_eval = False
    self._saves = False  # Whether a job of this process saves checkpoints.

  @property
  def Trainer(self):
    return super().Trainer if py_utils.IsEagerMode() else runners.Trainer

  @property
  def Evaler(self):
    return super().Evaler if py_utils.IsEagerMode() else checkpoint_jobs.Evaler

  @property
  def Decoder(self):
    return super().Decoder if py_utils.IsEagerMode() else checkpoint_jobs.Decoder

  def GetParamsForDataset(self, job_name, dataset_name):
    params = models.Params(super().GetParamsForDataset, job_name, dataset_name)
    num_micro_batches = FLAGS.num_micro_batches
    if self._one_micro_batch_in_eval and job_name in ('evaler', 'decoder'):
      num_micro_batches = 1
    pipelines.Configure(
        params, self._model_name, num_stages=FLAGS.num_stages, num_micro_batches=num_micro_batches,
        recompute=FLAGS.recompute, schedule=FLAGS.schedule, in_flight=FLAGS.in_flight, cost=FLAGS.cost,
        partition=FLAGS.partition, cost_cache=os.path.join(FLAGS.logdir, 'layer_times.json') if FLAGS.logdir else None)
    pipelines.CheckInFlight(params, FLAGS.in_flight)
    return params

  def _CreateRunner(self, job, model_task_name, logdir, tf_master, trial):
    """Creates a runner; for evaluation, with one micro-batch where the batch there can't be split as in training."""
    evaluates = job.startswith(('evaler_', 'decoder_'))
    if evaluates and FLAGS.run_locally:
      tf_master = ''  # In the local server, two jobs would share variables.
    try:
      return super()._CreateRunner(job, model_task_name, logdir, tf_master, trial)
    except ValueError:
      if not evaluates or self._one_micro_batch_in_eval:
        raise
    self._one_micro_batch_in_eval = True
    return super()._CreateRunner(job, model_task_name, logdir, tf_master, trial)

  def RunEvalerOnce(self):
    """Takes the metrics of the one checkpoint that --job names."""
    dataset, _, step = FLAGS.job[len('evaler_once_'):].partition('@')
    with user_errors.Translated('building the model'):
      evaler = self._CreateRunner(
          f'evaler_{dataset}', FLAGS.model_task_name, FLAGS.logdir, FLAGS.tf_master, base_trial.NoOpTrial())
    evaler.EvalCheckpoint(int(step))

  def UpdateClusterParamsFromFlags(self, cluster, job_name):
    super().UpdateClusterParamsFromFlags(cluster, job_name)
    cluster.stage_devices = list(self._stage_devices)

  def MaybeConfigRunLocally(self):
    """Starts the local TensorFlow server, with as many CPU devices as the stages need."""
    if not FLAGS.run_locally or FLAGS.run_locally == 'tpu':
      super().MaybeConfigRunLocally()
      return
    for job in ('controller', 'worker', 'ps', 'input', 'evaler', 'decoder'):
      FLAGS[f'{job}_job'].value = '/job:localhost'
    FLAGS.evaler_replicas = FLAGS.decoder_replicas = 1
    FLAGS.task = 0
    config = tf.config_pb2.ConfigProto(device_count=stage_devices.DeviceCount(self._stage_devices))
    self._tf_server = tf.distribute.Server.create_local_server(config=config)
    FLAGS.tf_master = self._tf_server.target

  def Start(self):
    """Does what --mode and --job say.

    Returns:
      The exit code.

    Raises:
      UserError: something that a person can put right.
    """
    with user_errors.Translated('reading the model\'s params'):
      self._ChooseDevices()
    inspect = {
        'inspect_params': self.InspectParams, 'inspect_model': self.InspectModel,
        'inspect_evaler': self.InspectDatasets, 'inspect_decoder': self.InspectDecoder,
        'write_inference_graph': self.WriteInferenceGraph}.get(FLAGS.mode)
    if inspect:
      with user_errors.Translated(f'--mode={FLAGS.mode}'):
        inspect()  # Not by way of super().Start(), which would log all that it does.
      return 0
    if FLAGS.mode not in launcher_flags.TRAINING_JOBS or FLAGS.use_eager or FLAGS.tpu or FLAGS.infer_tpu_cluster:
      super().Start()
      return 0
    with quiet.Stderr():
      self.MaybeConfigRunLocally()
    with user_errors.Translated('reading --cluster_spec, --job and --task'):
      self.MaybeConfigRunDistributed()
      self.MaybeLaunchTensorFlow()
    if FLAGS.job.startswith('evaler_once_'):
      self.RunEvalerOnce()
      return 0
    return self._Run(FLAGS.job.split(','))

  def _ChooseDevices(self):
    """Finds the stages' devices, for runs on this machine or where --stage_devices lists them in full."""
    counted = launcher_flags.CountsDevicesAsLingvo()
    if counted and FLAGS.stage_devices:
      raise user_errors.UserError(
          '--stage_devices lists devices and --worker_gpus or the like counts them: give one or the other.')
    if FLAGS.worker_gpus and FLAGS.run_locally:
      stage_devices.CheckNumGpus(FLAGS.worker_gpus)
    if counted or FLAGS.tpu or FLAGS.use_eager or FLAGS.run_locally == 'tpu':
      return
    if not FLAGS.run_locally and not FLAGS.stage_devices:
      return  # The devices are in other processes, where Lingvo finds them.
    wanted = FLAGS.stage_devices
    if not wanted and FLAGS['run_locally'].present:
      wanted = FLAGS.run_locally
    job = launcher_flags.TRAINING_JOBS.get(FLAGS.mode, 'trainer_client')
    params = self.GetParamsForDataset(job, 'Train')
    with quiet.Stderr():
      num_gpus = stage_devices.NumGpus()
    self._stage_devices = stage_devices.Resolve(wanted, pipelines.NumStages(params), num_gpus)

  def _Run(self, jobs):
    """Runs jobs to their end; returns the exit code."""
    if not models.HasDataset(self._model_name, 'Train') and any(j.startswith('trainer') for j in jobs):
      raise user_errors.UserError(
          f'{self._model_name} has no dataset Train: define its method Train, which returns the params of an input '
          'generator.')
    with user_errors.Translated('building the model'):
      all_runners = self.CreateRunners(jobs, FLAGS.logdir)
    trainers = [r for r in all_runners if isinstance(r, runners.Trainer)]
    self._saves = FLAGS.checkpoint_in_trainer_cpu or any(isinstance(r, runners.Controller) for r in all_runners)
    if not trainers:
      self.StartRunners(all_runners)
      return 0
    print(f'{self._model_name} in {FLAGS.logdir}')
    print(stage_table.Format(trainers[0].model), flush=True)
    if FLAGS.run_locally and len(all_runners) == 1:
      trainers[0].TrainAlone()
    with stop_signals.StopSignals(self._Stopping) as signals:
      for runner in all_runners:
        runner.stop_signals = signals
      self.StartRunners(all_runners)
    if signals.received:
      saved = f'the checkpoint is in {os.path.join(FLAGS.logdir, "train")}' if self._saves else (
          'checkpoints are the controller\'s')
      print(f'Stopped after step {trainers[0].last_step}; {saved}. The same command resumes:\n'
            f'  {shlex.join(sys.orig_argv)}', flush=True)
      return signals.exit_code
    if FLAGS.eval_at_end and FLAGS.run_locally:
      self._EvalAtEnd(trainers[0])
    return 0

  def _Stopping(self):
    saved = ' and a checkpoint saved' if self._saves else ''
    print(f'\nStopping: the step under way is finished{saved}. Once more to stop at once, without.',
          file=sys.stderr, flush=True)

  def _EvalAtEnd(self, trainer):
    """Evaluates the last checkpoint on the Test dataset, and decodes that where the task can."""
    if not models.HasDataset(self._model_name, 'Test'):
      return
    if FLAGS.model_task_name or 'task' in trainer.params:  # Of several tasks, one is evaluated at a time.
      tf.Session.reset(FLAGS.tf_master)  # The trainer's variables would be in the way on a full device.
      with user_errors.Translated('building the model for its Test dataset'):
        evaler = self._CreateRunner('evaler_Test', FLAGS.model_task_name, FLAGS.logdir, '', base_trial.NoOpTrial())
      evaler.at_end = True
      evaler.EvalLatestCheckpoint()
      if evaler.task_decodes:
        tf.Session.reset(FLAGS.tf_master)
        with user_errors.Translated('building the model to decode its Test dataset'):
          decoder = self._CreateRunner('decoder_Test', FLAGS.model_task_name, FLAGS.logdir, '', base_trial.NoOpTrial())
        decoder.at_end = True
        decoder.DecodeLatestCheckpoint()
