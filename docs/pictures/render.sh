#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the pictures of README.md, docs/viewer.md and docs/own_groups.md that `rehearse render` draws.
# usage: docs/pictures/render.sh REHEARSE      run it in the project's root
set -euo pipefail
rehearse=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

draw() {  # draw NAME SCENARIO OPTION...
  "$rehearse" simulate "scenarios/$2.json" --trace "$work/step.trace" >/dev/null
  "$rehearse" render "$work/step.trace" --png "docs/pictures/$1.png" "${@:3}"
}
for schedule in naive gpipe 1f1b interleaved; do
  draw "pipeline-$schedule" "pipeline-$schedule" --width 1400
done
draw gpt3-175b gpt3-175b-1024 --width 1400
draw gpt3-175b-end gpt3-175b-1024 --width 1400 --range 19.1s:21s
draw gpt3-175b-1024 gpt3-175b-1024 --width 1600
"$rehearse" simulate collectives-4 --trace "$work/step.trace" >/dev/null
"$rehearse" render "$work/step.trace" --svg docs/pictures/own-groups.svg --width 900
