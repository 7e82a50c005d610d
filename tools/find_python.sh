#!/usr/bin/env bash
# find_python.sh VERSION...: prints the path of the first Python of these versions (best first) that runs and can make a
# virtual environment. Looks on the PATH, then among pyenv's installed versions. Exits 1 where there is none.
set -uo pipefail

# A name on the PATH proves nothing: a pyenv shim exists for versions that are not switched on, and Debian's python3
# comes without venv. So each candidate is run.
probe() {  # VERSION EXECUTABLE
  local found
  found=$("$2" -c 'import sys; print("%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null </dev/null) || return 1
  [ "${found%% *}" = "$1" ] || return 1
  if ! "$2" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "setup: passed over $2: Python $1 without the venv module (Debian, Ubuntu: apt-get install python$1-venv)" >&2
    return 1
  fi
  echo "${found#* }"
}

# pyenv may be off the PATH, or on it through its shims alone (with another user's HOME).
pyenv_roots() {
  [ -z "${PYENV_ROOT:-}" ] || echo "$PYENV_ROOT"
  [ -z "${HOME:-}" ] || echo "$HOME/.pyenv"
  tr : '\n' <<<"$PATH" | sed -nE 's,/shims/?$,,p'
}

for version; do
  while read -r executable; do
    probe "$version" "$executable" && exit
  done < <(type -ap "python$version" python3 python)
done
for version; do
  while read -r root; do
    for executable in "$root/versions/$version".*/bin/python; do
      [ -x "$executable" ] && probe "$version" "$executable" && exit
    done
  done < <(pyenv_roots)
done
exit 1
