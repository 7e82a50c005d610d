# Each of these does all the set-up that it needs. See CONTRIBUTING.md.
#
#   STACK=portable|current   the software stack; by default set-up picks it from the machine
#   GPU=1                    set-up installs TensorFlow's CUDA libraries too
#   MODEL, LOGDIR, ARGS      what `make train` trains, where it saves, and the trainer's other flags
#   PYTEST_ARGS              more arguments for pytest, such as: PYTEST_ARGS='tests/micro_batch_test.py -x'

VENV := .venv
MODEL := model_registry.image.resnet.ResNetDigits
LOGDIR := build/digits
ARGS := --num_stages=2 --num_micro_batches=4
PYTEST_ARGS :=

PYTHON := $(VENV)/bin/python
READY := $(VENV)/ready$(STACK:%=-%)$(if $(filter 1,$(GPU)),-gpu)

# Without TensorFlow's notes about the processor and missing GPUs.
export TF_CPP_MIN_LOG_LEVEL ?= 2

# The PyTorch peers of the benchmarks.
BENCH_VENV := .venv-bench

.PHONY: help setup train train-lm train-mt test test-all test-current bench bench-quick bench-grpc bench-memory bench-build bench-trainer bench-plan lock

help:
	@echo "make setup         the virtual environment alone (GPU=1: with TensorFlow's CUDA libraries)"
	@echo "make train         trains a ResNet on handwritten digits over two devices"
	@echo "make train-lm      trains a small Transformer on Python's source code over two devices"
	@echo "make train-mt      trains an encoder-decoder to reverse byte strings over two devices"
	@echo "make test          runs the tests"
	@echo "make test-all      runs the slow tests too"
	@echo "make test-current  runs the tests on the newest stack in a Debian 13 folder, for older systems (as root)"
	@echo "make bench-quick   measures this project beside its peers, a few minutes; make bench: everything, an hour or two"
	@echo "make bench-plan    holds what plans say against this machine, and writes docs/plan.md"
	@echo "make bench-grpc, bench-memory, bench-build, bench-trainer  measure a process a stage, memory, how long graphs"
	@echo "                   take to build, and the trainer beside its bare step"
	@echo "make lock          pins the packages in requirements/ anew"

setup: $(READY)
	@echo "$(VENV) is ready: $$(cat $(VENV)/stack) stack"

train: $(READY)
	$(PYTHON) -m lingvo_gpipe.trainer --model=$(MODEL) --logdir=$(LOGDIR) $(ARGS)

train-lm: $(READY)
	$(PYTHON) -m lingvo_gpipe.trainer --model=model_registry.lm.transformer.TransformerTiny --logdir=build/lm \
	  --num_stages=2 --recompute=never

train-mt: $(READY)
	$(PYTHON) -m lingvo_gpipe.trainer --model=model_registry.mt.reverse.ReverseBytes --logdir=build/mt \
	  --num_stages=2 $(MT_ARGS)

test: $(READY)
	$(PYTHON) -m pytest $(PYTEST_ARGS)

test-all: $(READY)
	$(PYTHON) -m pytest -m '' $(PYTEST_ARGS)

test-current:
	tools/test_current.sh

# Where the peers can't be installed, the table says that they are missing.
bench-quick: $(READY)
	-$(MAKE) $(BENCH_VENV)/ready
	$(PYTHON) -m benchmarks.run --groups=quick

# Goes on where it stopped with BENCH_ARGS=--resume; a part: BENCH_ARGS="--workloads=transformer --stages=2".
bench: $(READY)
	-$(MAKE) $(BENCH_VENV)/ready
	$(PYTHON) -m benchmarks.run --rounds=3 --steps=2 $(BENCH_ARGS)

bench-grpc: $(READY)
	-$(MAKE) $(BENCH_VENV)/ready
	$(PYTHON) -m benchmarks.run --groups=grpc --output=build/bench_grpc.json

bench-memory: $(READY)
	$(PYTHON) -m benchmarks.memory

bench-build: $(READY)
	$(PYTHON) -m benchmarks.build_time

bench-trainer: $(READY)
	$(PYTHON) -m benchmarks.trainer_speed

bench-plan: $(READY)
	$(PYTHON) -m benchmarks.plan_reality
	$(PYTHON) -m benchmarks.plan_document

lock: $(READY)
	tools/lock.sh $(VENV)/bin/uv

$(READY): $(filter-out requirements/bench-%,$(wildcard requirements/*.txt))
	@STACK=$(STACK) GPU=$(GPU) tools/setup.sh $(VENV)

$(BENCH_VENV)/ready: requirements/bench-torch.txt
	@tools/setup_bench.sh $(BENCH_VENV)
