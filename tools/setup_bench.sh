#!/usr/bin/env bash
# setup_bench.sh VENV: makes the environment of the benchmarks' PyTorch peers. They can't share TensorFlow's: the two
# want different versions of common packages. `make bench` calls it.
set -euo pipefail

venv=$1

# 3.11 comes first because PyTorch's and torchgpipe's versions were measured with it.
python=$(tools/find_python.sh 3.11 3.12 3.10) || {
  echo "setup-bench: the PyTorch peers need Python 3.10, 3.11 or 3.12 with its venv module; none was found." >&2
  exit 1
}
echo "setup-bench: Python: $python"
rm -rf "$venv"
"$python" -m venv "$venv"
# setuptools builds torchgpipe, which comes as source alone, and reads the rest of its set-up from outside of isolation.
"$venv/bin/python" -m pip install --quiet "setuptools<81" wheel
"$venv/bin/python" -m pip install --quiet --no-build-isolation --requirement requirements/bench-torch.txt
touch "$venv/ready"
