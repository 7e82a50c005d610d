"""A pipeline's layers one by one, for what isn't training: decoding, export."""

from lingvo_gpipe import shared_weights


def LayersInSequence(pipeline, theta):
  """The layers of a pipeline, without its stages.

  Args:
    pipeline: A PipeliningLayer made with `layers`.
    theta: NestedMap of its weights.

  Returns:
    A list of (layer, NestedMap of the weights it uses), in order. Shared weights
    are there.
  """
  cells = [(p.name, pipeline.children[p.name]) for p in pipeline.params.cell_tpl]
  theta = shared_weights.Share(theta, cells, pipeline.params.shared_weights)
  return [(cell.children[p.name], theta[name][p.name])
          for name, cell in cells
          for p in cell.params.sub]
