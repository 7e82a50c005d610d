"""A cluster whose devices are the pipeline's stages.

Lingvo's cluster counts devices (so many a replica, so many a split) and finds them by number. A pipeline needs to say
which device holds which stage: `StageCluster` takes that list, and then the whole list is one replica with one split,
so that a mini-batch is never divided over the stages.
"""
import numpy as np

from lingvo_gpipe import lingvo_compat
from lingvo_gpipe.launcher import placer


class StageCluster(lingvo_compat.Cluster):
  """Lingvo's cluster, with the stages' devices listed by name.

  With `stage_devices` empty it is Lingvo's cluster unchanged. Otherwise:

  - `WorkerDeviceInModelSplit(i)` is the device of stage i, counted round where there are more stages than devices;
  - every job (trainer, controller, evaler, ...) sees the same devices, so that a checkpoint's variables land where the
    trainer had them;
  - operations without a device, variables among them, are placed by `placer.StagePlacer`.

  `gpus_per_replica` stays 0 even on GPUs: where it isn't, Lingvo copies each weight to a device picked in turn before
  the layers see it, which here would be another stage's.
  """

  @classmethod
  def Params(cls):
    p = super().Params()
    p.Define(
        'stage_devices', [],
        'Full names of devices (/job:localhost/replica:0/task:0/device:CPU:1), the first stage\'s first. '
        'A device may hold several stages. Empty: the devices that Lingvo finds.')
    return p

  def InitDevices(self, sess):
    """Takes note of the session's devices.

    Args:
      sess: a tf.Session.

    Raises:
      ValueError: a stage's device isn't there.
    """
    super().InitDevices(sess)
    missing = [d for d in self.params.stage_devices if d not in self._session_devices]
    if missing:
      raise ValueError(
          f'The stage device {missing[0]} does not exist. TensorFlow found {", ".join(sorted(self._session_devices))}.')

  def ListDevices(self, job_spec):
    """Returns an array of device names, [replicas, devices a replica]."""
    if not self.params.stage_devices:
      return super().ListDevices(job_spec)
    return np.array([self.params.stage_devices], object)

  @property
  def num_replicas(self):
    return 1 if self.params.stage_devices else super().num_replicas

  @property
  def num_devices_per_replica(self):
    return len(self.params.stage_devices) or super().num_devices_per_replica

  @property
  def num_devices_per_split(self):
    return len(self.params.stage_devices) or super().num_devices_per_split

  @property
  def total_worker_devices(self):
    return len(self.params.stage_devices) or super().total_worker_devices

  def GetPlacer(self, strategy=None):
    """Returns what to hand to `tf.device` for operations that nobody placed."""
    if strategy is None and self.params.stage_devices:
      return placer.StagePlacer(self.params.stage_devices[0]).DeviceFunction
    return super().GetPlacer(strategy)
