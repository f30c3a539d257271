#!/usr/bin/env bash
# Makes every figure of docs/simulations.md by running the commands printed there.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH="$PWD/${CARGO_TARGET_DIR:-target}/release:$PATH"
awk '/^```sh$/ { inside = 1; next } /^```$/ { inside = 0 } inside' docs/simulations.md | bash -euo pipefail -x
