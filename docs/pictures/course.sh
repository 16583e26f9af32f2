#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the pictures of docs/course: timelines by `rehearse render`, the others by course.py.
# usage: docs/pictures/course.sh REHEARSE      run it in the project's root
set -euo pipefail
rehearse=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

draw() {  # draw NAME SCENARIO OPTION...
  "$rehearse" simulate "$2" --trace "$work/step.trace" >/dev/null
  "$rehearse" render "$work/step.trace" --svg "docs/pictures/course-$1.svg" --width 900 "${@:3}"
}
draw ddp dp-ddp
draw through-one dp-parameter-server
draw inside tensor-inside-nodes --range 0:400ms
draw across tensor-across-nodes --range 0:400ms
draw 3d 3d-8-gpus --range 0:1200ms
draw grid tensor-grid-64
docs/pictures/course.py "$rehearse"
