"""What optimizers keep, against what is known of them."""

from lingvo.core import base_model
from lingvo.core import learner
from lingvo.core import optimizer
import pytest

from lingvo_gpipe.planning import optimizer_slots


@pytest.mark.parametrize('cls,slots', [
    (optimizer.SGD, 0), (optimizer.Momentum, 1), (optimizer.Adagrad, 1),
    (optimizer.RMSProp, 2), (optimizer.Adam, 2),
    (optimizer.XLAShardingAdafactor, 2 / 256)])
def testSlots(cls, slots):
  train = base_model.BaseTask.Params().train
  train.optimizer = cls.Params()
  assert optimizer_slots.SlotsPerWeight(train) == slots


def testAveragesAndLearners():
  train = base_model.BaseTask.Params().train
  train.ema_decay = 0.9
  train.learner = [
      learner.Learner.Params().Set(name=f'l{i}', optimizer=cls.Params())
      for i, cls in enumerate([optimizer.SGD, optimizer.Momentum])
  ]
  assert optimizer_slots.SlotsPerWeight(train) == 2
