#!/usr/bin/env bash
# link_cuda.sh VENV: lets TensorFlow 2.13 find the CUDA libraries that pip installed. It looks in its own folder, not in
# nvidia's as later versions do; TensorFlow's own install guide gives these links.
set -euo pipefail
cd "$1"/lib/python3.*/site-packages/tensorflow
ln -sf ../nvidia/*/lib/*.so* .
