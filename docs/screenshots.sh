#!/usr/bin/env bash
# Pictures of the pages, docs/img/page-*.png, from the program as it is: needs Debian's chromium and chromium-driver.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --workspace --locked --test browser screenshots -- --ignored --exact screenshots::screenshots
