"""Prints the user's pip settings as shell exports for uv, which does not read them.

Run by the Python whose pip counts: eval "$(.venv/bin/python tools/pip_to_uv.py)". What the user set for uv itself
(UV_DEFAULT_INDEX and so on) stays as it is.
"""
import ast
import os
import shlex
import subprocess
import sys

# pip's setting -> uv's environment variables.
_VARIABLES = {
    'cert': ['SSL_CERT_FILE'],
    'client-cert': ['SSL_CLIENT_CERT'],
    'constraint': ['UV_CONSTRAINT'],
    'default-timeout': ['UV_HTTP_TIMEOUT'],
    'extra-index-url': ['UV_INDEX'],
    'find-links': ['UV_FIND_LINKS'],
    'index-url': ['UV_DEFAULT_INDEX'],
    'no-index': ['UV_NO_INDEX'],
    'proxy': ['HTTP_PROXY', 'HTTPS_PROXY'],
    'timeout': ['UV_HTTP_TIMEOUT'],
    'trusted-host': ['UV_INSECURE_HOST'],
}
_LISTS = {'constraint': ' ', 'extra-index-url': ' ', 'find-links': ',', 'trusted-host': ' '}


def PipSettings() -> dict[str, str]:
  """pip's settings for `pip install`, by their names on its command line."""
  listing = subprocess.run(
      [sys.executable, '-m', 'pip', 'config', 'list'], capture_output=True, text=True, check=True).stdout
  settings = {}
  # pip's own order: what is said for one command beats what is said for all, the environment beats both.
  for section in ('global.', 'install.', ':env:.'):
    for line in listing.splitlines():
      name, _, value = line.partition('=')
      if name.startswith(section):
        settings[name[len(section):]] = ast.literal_eval(value)
  return settings


def IsThere(source: str) -> bool:
  """Whether a source is remote or lies on this machine. pip passes over a missing folder, uv stops at it."""
  path = source.removeprefix('file://')
  return ('://' in path) or os.path.exists(path)


def Exports(settings: dict[str, str], environ) -> dict[str, str]:
  """The variables to export."""
  exports = {}
  for setting, variables in _VARIABLES.items():
    value = settings.get(setting, '')
    if setting in _LISTS:
      parts = value.split()
      if setting != 'trusted-host':
        parts = [part for part in parts if IsThere(part)]
      value = _LISTS[setting].join(parts)
    for variable in variables:
      if value and variable not in environ:
        exports[variable] = value
  if 'UV_INDEX' in exports and 'UV_INDEX_STRATEGY' not in environ:
    # pip takes the best version from all its indexes together; uv would stop at the first that knows the name.
    exports['UV_INDEX_STRATEGY'] = 'unsafe-best-match'
  return exports


if __name__ == '__main__':
  for variable, value in Exports(PipSettings(), os.environ).items():
    print(f'export {variable}={shlex.quote(value)}')
