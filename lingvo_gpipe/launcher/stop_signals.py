"""Turns Ctrl-C into a request that the training loop answers when its step is done."""
import os
import signal
import threading

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
  """Between `with` and its end, the first SIGINT or SIGTERM is noted, and the second one ends the process.

  Python runs a signal's handler only when the main thread is back from TensorFlow, at the end of a step that may take
  minutes. So the signals are read from a pipe by a thread of their own, which can answer at once.

  Attributes:
    received: the number of the signal received, or None.
  """

  def __init__(self, on_first):
    """Constructor.

    Args:
      on_first: called without arguments, in a thread of its own, when the first signal arrives.
    """
    self.received = None
    self._on_first = on_first

  @property
  def exit_code(self):
    """The shell's code for a process that a signal ended: 130 for Ctrl-C."""
    return 128 + self.received if self.received else 0

  def __enter__(self):
    self._read, self._write = os.pipe()
    os.set_blocking(self._write, False)
    self._old_wakeup = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
    # A handler is needed for the pipe to be written to, and for the process to live on.
    self._old_handlers = [(s, signal.signal(s, lambda *_: None)) for s in _SIGNALS]
    self._thread = threading.Thread(target=self._Listen, name='stop_signals', daemon=True)
    self._thread.start()
    return self

  def __exit__(self, *unused_args):
    for s, handler in self._old_handlers:
      signal.signal(s, handler)
    signal.set_wakeup_fd(self._old_wakeup)
    os.close(self._write)  # The thread reads the end of the file.
    self._thread.join()
    os.close(self._read)

  def _Listen(self):
    while True:
      data = os.read(self._read, 64)
      if not data:
        return
      for number in data:
        if number not in _SIGNALS:
          continue
        if self.received:
          os._exit(128 + number)  # pylint: disable=protected-access
        self.received = number
        self._on_first()
