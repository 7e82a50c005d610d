"""Every module and test has its target in its folder's BUILD file, with the project's modules that it imports."""

import ast
import pathlib

from absl.testing import absltest

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_FOLDERS = ('benchmarks', 'lingvo_gpipe', 'model_registry', 'tests')


def Sources():
  """The project's Python files, as paths from the root."""
  return [
      path.relative_to(_ROOT)
      for folder in _FOLDERS
      for path in sorted((_ROOT / folder).rglob('*.py'))
      # An __init__.py without code needs no target: Bazel makes such files itself.
      if path.name != '__init__.py' or ast.parse(path.read_text()).body
  ]


def Label(source):
  """The target of a source file: named after the file, or after the folder for its __init__.py."""
  name = source.parent.name if source.name == '__init__.py' else source.stem
  return f'//{source.parent}:{name}'


def _SourceOf(module):
  """The project's file that is `module`, or None."""
  path = pathlib.Path(*module.split('.'))
  for source in (path.with_suffix('.py'), path / '__init__.py'):
    if source.parts[0] in _FOLDERS and (_ROOT / source).is_file():
      return source
  return None


def Dependencies(source, sources):
  """The labels of the project's modules that a file imports; for a test, also the conftest.py that pytest loads."""
  found = set()
  if source.name.endswith('_test.py'):
    found.update(parent / 'conftest.py' for parent in source.parents)
  for node in ast.walk(ast.parse((_ROOT / source).read_text())):
    if isinstance(node, ast.Import):
      found.update(_SourceOf(alias.name) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      # `from a import b` is the module a.b where there is one, else something that a defines.
      found.update(_SourceOf(f'{node.module}.{alias.name}') or _SourceOf(node.module) for alias in node.names)
  return {Label(dependency) for dependency in found if dependency in sources and dependency != source}


def Stanza(source, dependencies):
  """What a BUILD file says about a source file."""
  package, name = Label(source).split(':')
  lines = ['py_test(' if name.endswith('_test') else 'py_library(']
  lines.append(f'    name = "{name}",')
  lines.append(f'    srcs = ["{source.name}"],')
  if dependencies:
    lines.append('    deps = [')
    local = sorted(label.replace(package + ':', ':') for label in dependencies)
    lines.extend(f'        "{label}",' for label in local)
    lines.append('    ],')
  return '\n'.join(lines + [')'])


def Targets(folder):
  """The targets in a folder's BUILD file: {label: (kind, srcs, labels of deps)}."""
  build = _ROOT / folder / 'BUILD'
  targets = {}
  # Starlark without load() or macros is Python to its parser.
  for node in ast.walk(ast.parse(build.read_text() if build.exists() else '')):
    if isinstance(node, ast.Call) and node.func.id in ('py_library', 'py_test'):
      values = {keyword.arg: ast.literal_eval(keyword.value) for keyword in node.keywords}
      deps = {f'//{folder}{dep}' if dep.startswith(':') else dep for dep in values.get('deps', [])}
      targets[f'//{folder}:{values["name"]}'] = (node.func.id, values['srcs'], deps)
  return targets


class BuildFilesTest(absltest.TestCase):

  def testEveryFileHasItsTarget(self):
    sources = Sources()
    wrong = []
    for source in sources:
      dependencies = Dependencies(source, sources)
      expected = ('py_test' if source.name.endswith('_test.py') else 'py_library', [source.name], dependencies)
      if Targets(source.parent).get(Label(source)) != expected:
        wrong.append(f'{source.parent}/BUILD must say:\n{Stanza(source, dependencies)}')
    self.assertEmpty(wrong, '\n\n' + '\n\n'.join(wrong))

  def testEveryTargetHasItsFile(self):
    labels = {Label(source) for source in Sources()}
    for build in (build for folder in _FOLDERS for build in sorted((_ROOT / folder).rglob('BUILD'))):
      folder = build.parent.relative_to(_ROOT)
      stale = set(Targets(folder)) - labels
      self.assertEmpty(stale, f'{folder}/BUILD has targets whose file is gone: {sorted(stale)}')


if __name__ == '__main__':
  absltest.main()
