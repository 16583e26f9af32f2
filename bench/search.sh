#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures the search and writes what it prints into docs/search.md: the benchmark with machine,
# date and commit, and the outputs of the page's own commands with their picture.
#   bench/search.sh [BUILD]      BUILD: a configured release build, default build/release
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ -f "$build/build.ninja" ] || cmake --preset release -B "$build" >/dev/null
ninja -C "$build" search_bench rehearse >/dev/null
"${PYTHON:-python3}" bench/search_page.py "$build/bin" docs/search.md
