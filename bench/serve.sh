#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How long 1,000 random calls over the Model Context Protocol take: the agent of tests/cli/serve/serve_agent.py, every answer
# checked. usage: bench/serve.sh [REHEARSE [CALLS [SEED]]]
cd "$(dirname "$0")/.." || exit 2
exec python3 tests/cli/serve/serve_agent.py "${1:-build/release/bin/rehearse}" "${2:-1000}" "${3:-1}"
