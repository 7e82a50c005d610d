"""Whether a checkpoint is of a model."""

import lingvo.compat as tf


def Check(path, shapes):
  """Refuses a checkpoint of another model, which may differ in shapes alone.

  Args:
    path: The checkpoint's path.
    shapes: {name in the checkpoint: the variable's tf.TensorShape}.

  Raises:
    ValueError: a variable isn't in the checkpoint or has another shape there.
  """
  saved = tf.train.load_checkpoint(path).get_variable_to_shape_map()
  for name, shape in shapes.items():
    if name not in saved or not shape.is_compatible_with(saved[name]):
      raise ValueError(
          f'The checkpoint {path} is not of this model: the variable {name} is '
          f'{saved.get(name, "missing")} in the checkpoint and '
          f'{shape.as_list()} in the model.')
