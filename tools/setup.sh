#!/usr/bin/env bash
# setup.sh VENV: makes the virtual environment. Picks the software stack that fits the machine, finds a Python for it,
# and installs the stack's pinned packages. `make` calls it; these variables steer it:
#   STACK=portable|current  overrides the choice
#   GPU=1                   adds TensorFlow's CUDA libraries
set -euo pipefail

venv=$1
stack=${STACK:-}
oldest_glibc=2.38  # what the compiled operators of the current stack's lingvo were linked with
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

say() { echo "setup: $*"; }

give_up() {
  { echo; echo "setup: $*" | fold -s -w 100; echo; } >&2
  exit 1
}

is_at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }  # is_at_least WANTED FOUND

# uv is on the PATH already, or any Python with pip can bring it.
some_uv() {
  local python
  if uv --version >/dev/null 2>&1; then
    command -v uv
    return
  fi
  python=$(tools/find_python.sh 3.14 3.13 3.12 3.11 3.10 3.9 3.8) || return 1
  "$python" -m venv "$scratch" || return 1
  "$scratch/bin/python" -m pip install --quiet --requirement requirements/bootstrap.txt >&2 || return 1
  echo "$scratch/bin/uv"
}

fetch_python() {  # VERSION
  local uv
  say "no Python $1 that runs on the PATH or in pyenv: fetching one with uv" >&2
  uv=$(some_uv) || return 1
  # Only for this project: no python3.10 appears on the user's PATH.
  export UV_PYTHON_INSTALL_BIN=0 UV_PYTHON_PREFERENCE=only-managed
  "$uv" python install "$1" >&2 && "$uv" python find "$1"
}

[ "$(uname -sm)" = "Linux x86_64" ] || give_up "Lingvo has compiled wheels for Linux on x86_64 alone, and this is" \
  "$(uname -sm). Use such a machine, a container of that kind or, on Windows, WSL 2."
glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //') || true
[ -n "$glibc" ] || give_up "Lingvo's wheels need glibc, and this system has another C library (Alpine's musl?). Use a" \
  "system such as Debian, Ubuntu or Fedora, or a container of one."

python=
case $stack in
  '')
    if ! is_at_least $oldest_glibc "$glibc"; then
      stack=portable why="glibc $glibc is older than $oldest_glibc"
    elif python=$(tools/find_python.sh 3.13 3.12 3.11 3.10); then
      stack=current why="glibc $glibc is $oldest_glibc or newer and there is a Python 3.10 to 3.13"
    else
      stack=portable why="there is no Python 3.10 to 3.13 for the current stack"
    fi ;;
  current)
    is_at_least $oldest_glibc "$glibc" || give_up "STACK=current can't run here: its compiled operators need glibc" \
      "$oldest_glibc or newer, and this machine has $glibc. Leave STACK out to get the portable stack, or run" \
      "'make test-current' to test the current one in a Debian 13 folder."
    why="STACK=current was asked for" ;;
  portable) why="STACK=portable was asked for" ;;
  *) give_up "STACK=$stack is unknown. Say STACK=portable or STACK=current, or leave it out." ;;
esac
say "$stack stack: $why"

case $stack in
  portable) versions=(3.10) wanted="Python 3.10" ;;
  current) versions=(3.13 3.12 3.11 3.10) ;;
esac
# A new enough machine could run the current stack with any of its Pythons.
if is_at_least $oldest_glibc "$glibc" && [ "${STACK:-}" != portable ]; then wanted="a Python from 3.10 to 3.13"; fi
[ -n "$python" ] || python=$(tools/find_python.sh "${versions[@]}") || python=$(fetch_python "${versions[0]}") ||
  give_up "Set-up needs $wanted with its venv module. None was found on the PATH or among pyenv's versions," \
    "and uv could not fetch one (its message, if it got so far, is above). Install one, for example with" \
    "'pyenv install ${versions[0]}' or, on Debian or Ubuntu, 'apt-get install python${versions[0]}-venv' where the" \
    "system has that version, then run the same command again. Any place on the PATH will do."
say "Python: $python"

# A virtual environment that had the CUDA libraries keeps them when it is made anew.
gpu=
if [ "${GPU:-}" = 1 ] || [ -e "$venv/ready-gpu" ]; then gpu=-gpu; fi

# Where VENV is a link, Python would empty the environment that it points to, another's perhaps, and then refuse.
if [ -L "$venv" ]; then
  say "$venv is a link, to $(readlink "$venv"): a folder takes its place"
  rm "$venv"
fi
"$python" -m venv --clear "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement requirements/bootstrap.txt
eval "$("$venv/bin/python" tools/pip_to_uv.py)"
requirements=requirements/$stack$gpu.txt
say "installing $(grep -c == "$requirements") packages from $requirements into $venv"
quiet=--quiet
if [ -t 2 ]; then quiet=; fi
# --no-deps: the list is complete, and lingvo's wheel declares much that training never imports (see pyproject.toml).
"$venv/bin/uv" pip install $quiet --python "$venv/bin/python" --no-deps --requirement "$requirements"
# The project itself, so that its commands work from any folder.
"$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps --no-build-isolation --editable .
if [ "$stack$gpu" = portable-gpu ]; then tools/link_cuda.sh "$venv"; fi

# Shows that it works and lets Python compile what training imports, so that the next command starts in less than half
# the time, also where PYTHONDONTWRITEBYTECODE is set.
say "trying it"
env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c 'import lingvo.trainer, sklearn.datasets, tqdm' \
  >"$scratch/import.log" 2>&1 || give_up "the installed packages don't import:" "$(tail -n 20 "$scratch/import.log")"

# `make` looks for the one that matches its STACK and GPU.
echo "$stack" >"$venv/stack"
touch "$venv/ready" "$venv/ready-$stack"
if [ -n "$gpu" ]; then touch "$venv/ready-gpu" "$venv/ready-$stack-gpu"; fi
say "done in $SECONDS s"
