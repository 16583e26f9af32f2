#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Prints the row of docs/measurements/sanitizers.md for a part that has just run: commit, date, machine.
# Usage: row.sh "JOB PART" SECONDS RESULT.
cd "$(dirname "$0")/../.." || exit 2
commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo unknown)
git diff --quiet HEAD 2>/dev/null || commit+=", changed"
machine=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)
echo "| \`$1\` | $commit | $(date +%Y-%m-%d) | $(nproc) cores${machine:+ of $machine}, load $(cut -d' ' -f3 /proc/loadavg) |" \
  "$((($2 + 59) / 60)) min | $3 |"
