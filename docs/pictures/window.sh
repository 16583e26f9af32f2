#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the window's pictures of docs/viewer.md: the real window, on a display without a screen.
# usage: docs/pictures/window.sh REHEARSE      needs xvfb-run; run it in the project's root
set -euo pipefail
rehearse=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

simulate() {  # simulate NAME SCHEDULE CHUNKS TITLE: GPT-3 175B, a quarter of its batch
  "$rehearse" simulate scenarios/gpt3-175b-1024.json --set "name=GPT-3 175B, $4" \
    --set plan.schedule="$2" --set plan.virtual_stages="$3" --set plan.global_batch=384 \
    --trace "$work/$1.trace" >/dev/null
}
shoot() {  # shoot NAME HEIGHT SCRIPT TRACE...
  printf '%b' "$3" >"$work/script"
  xvfb-run -a -s "-screen 0 3840x2160x24" "$rehearse" view "${@:4}" --script "$work/script" \
    --width "${width:-1400}" --height "$2" --screenshot "docs/pictures/$1.png"
}

simulate 1f1b 1f1b 1 "1F1B"
simulate interleaved interleaved_1f1b 3 "interleaved 1F1B, 3 chunks"
simulate zb_h1 zb_h1 1 "zero bubble (ZB-H1)"
for name in 1f1b interleaved zb_h1; do
  shoot "window-$name" 620 'key X\nkey G\nkey H\n' "$work/$name.trace"
done
shoot window-two 860 'key X\nkey 3\nkey G\nkey H\n' "$work/1f1b.trace" "$work/zb_h1.trace"
"$rehearse" simulate scenarios/gpt3-175b-1024.json --set "name=GPT-3 175B, 1F1B, no recompute" \
  --set plan.schedule=1f1b --set plan.virtual_stages=1 --set plan.global_batch=384 \
  --set plan.recompute=none --trace "$work/memory.trace" >/dev/null
shoot window-memory 1000 'key H\nmove 800 165\n' "$work/memory.trace"

"$rehearse" simulate scenarios/gpt3-175b-1024.json --trace "$work/gpt3.trace" >/dev/null
shoot window 860 'key G\nkey 3\nkey C\nkey /\ntext 5B88\nkey Enter\nkey Escape\nmove 1220 325\n' "$work/gpt3.trace"
width=3840 shoot window-4k 2160 'key H\nkey 1\nkey C\n' "$work/memory.trace" --scale 2
shoot window-inside 760 'key X\nkey G\nkey H\nkey /\ntext 5B60\nkey Enter\nkey Escape\nkey O\n' "$work/gpt3.trace"

shoot window-bubbles 820 'key X\nkey G\nkey H\nkey Z\ndo line 0\n' "$work/1f1b.trace"
shoot window-filter 760 'key G\nkey H\ndo pin 0\ndo only kinds F\ndo only microbatches 0-5\n' "$work/interleaved.trace"

# GPUs that differ by a hundredth, eight of them a tenth slower.
"$rehearse" simulate scenarios/gpt3-175b-1024.json --set "name=GPT-3 175B, 1,024 GPUs, eight slow" \
  --set plan.schedule=1f1b --set plan.virtual_stages=1 --set plan.global_batch=384 \
  --set 'variation={"seed":1,"speed_sigma":0.01,"slow":[{"ranks":"512-519","speed":0.9}]}' \
  --trace "$work/slow.trace" >/dev/null
shoot window-heat 860 'do heat straggler\nkey T shift\n' "$work/slow.trace"

# The click falls on the first rank's curve.
"$rehearse" simulate scenarios/tiny-gpt-4-ranks.json --set plan.runtime=rehearse --trace "$work/arena.trace" >/dev/null
shoot window-arena 760 'key X\nkey H\npress 700 280\nrelease 700 280\nmove 300 500\n' "$work/arena.trace"

# Predicted over measured: needs this machine to itself for ten seconds.
tiny=scenarios/tiny-gpt-4-ranks.json
"$rehearse" calibrate --quick --scenario $tiny -o "$work/machine.json" >/dev/null 2>&1
"$rehearse" run $tiny --dry-run --cluster "$work/machine.cluster.json" --trace "$work/predicted.trace" >/dev/null
"$rehearse" run $tiny --steps 20 --trace "$work/measured.trace" >/dev/null 2>&1
shoot window-measured 620 'key X\nkey G\nkey H\n' "$work/predicted.trace" "$work/measured.trace"
