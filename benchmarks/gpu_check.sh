#!/usr/bin/env bash
# What wants a GPU to be seen, in under ten minutes on one: benchmarks/gpu_check.sh
# Writes gpu_check.txt and gpu_check.json into runs/bench, or the folder OUT. Options go to gpu_check.py; PYTHON names
# the interpreter.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${OUT:-runs/bench}
mkdir -p "$out"
timeout 600 "${PYTHON:-python}" benchmarks/gpu_check.py --json "$out/gpu_check.json" "$@" | tee "$out/gpu_check.txt"
