#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the timelines and the sweep of docs/experts.md from the page's own commands.
# usage: docs/pictures/experts.sh REHEARSE      run it in the project's root
set -euo pipefail
rehearse=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

draw() {  # draw NAME TITLE OVERRIDE...: two forwards of the first position
  "$rehearse" simulate scenarios/qwen3-235b-256.json --set plan.expert_parallel=8 \
    --set plan.expert_dispatch=all_to_all "${@:3}" --trace "$work/step.trace" >/dev/null
  "$rehearse" render "$work/step.trace" --svg "docs/pictures/$1.svg" --title "$2" \
    --range 60ms:100ms --ranks 0 --width 1000
}
draw experts-inside "expert_parallel 8, experts whole: groups of 8 ranks, inside a node"
draw experts-across "expert_parallel 8, experts cut in two: groups of 16 ranks, over two nodes" \
  --set plan.expert_tensor_parallel=2
"$rehearse" simulate scenarios/qwen3-235b-256.json --sweep plan.expert_parallel=4,8,16,32 \
  --svg docs/pictures/experts-sweep.svg >/dev/null
