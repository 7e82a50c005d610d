#!/usr/bin/env bash
# Pins every package of both stacks: pyproject.toml + requirements/STACK.in -> requirements/STACK.txt, and the same with
# the CUDA libraries -> STACK-gpu.txt. Run it through `make lock`, after a change to one of these files.
set -euo pipefail
uv=$1

# The oldest Python of a stack decides the versions, so that one list serves them all.
compile() {
  UV_PYTHON_DOWNLOADS=never UV_CUSTOM_COMPILE_COMMAND="make lock" "$uv" pip compile pyproject.toml --extra test \
    --python-version 3.10 --only-binary :all: --quiet "$@"
}

for stack in portable current; do
  case $stack in
    portable) platform=x86_64-manylinux2014 ;;
    current) platform=x86_64-manylinux_2_39 ;;
  esac
  files=requirements/$stack
  compile --python-platform $platform --annotation-style line \
    --constraint $files.in --output-file $files.txt
  compile --python-platform $platform --no-annotate \
    --constraint $files.txt $files-gpu.in --output-file $files-gpu.txt
done
