#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The command for another machine answers as this machine's does: `--json` of predictions byte for byte but for how long
# they took, a run with the same losses. Usage: cross_test.sh COMMAND OTHER_COMMAND OTHER_ROOT
cd "$(dirname "$0")/../.." || exit 2
here=$1 other=$2 root=$3
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
file -L "$other" 2>/dev/null | grep -q x86-64 && { echo "$other is of this machine"; exit 1; }

# answers NAME COMMAND...: what a command says, without what differs from one run to the next.
answers() {
  local name=$1; shift
  "$@" >"$work/$name" 2>"$work/$name.errors" || { echo "$*: exit $?: $(tail -n 3 "$work/$name.errors")"; exit 1; }
  sed -i -E 's/"(wall_s)": [0-9.e+-]+/"\1": 0/g' "$work/$name"
}
questions=0
same() {
  answers here "$here" "$@"
  answers other qemu-aarch64 -L "$root" "$other" "$@"
  cmp -s "$work/here" "$work/other" ||
    { echo "rehearse $*: the answers differ:"; diff "$work/here" "$work/other" | head -n 10; exit 1; }
  questions=$((questions + 1))
}
same simulate tiny-gpt-4-ranks --json
same simulate gpt3-175b-1024 --json
same simulate 3d-8-gpus --json
same plan llama3-8b --gpus 16 --on dgx-h100 --json
same plan mixtral-8x7b --gpus 64 --on dgx-h100 --json
same schedule --schedule zb_v --stages 4 --microbatches 8 --chunks 2

# Its arithmetic has fused multiply-adds that this machine's has not: losses agree to their fifth digit.
losses() { tr -d '\n' <"$1" | grep -o '"losses": *\[[^]]*\]' | tr -dc '0-9.,' | tr ',' '\n' | cut -c1-7; }
answers here "$here" run tiny-dp-4 --steps 3 --json
answers other qemu-aarch64 -L "$root" "$other" run tiny-dp-4 --steps 3 --json
[ "$(losses "$work/here" | grep -c .)" -eq 3 ] || { echo "no losses"; exit 1; }
[ "$(losses "$work/here")" = "$(losses "$work/other")" ] ||
  { echo "losses differ: $(losses "$work/here" | xargs), $(losses "$work/other" | xargs)"; exit 1; }
echo "aarch64: $questions answers equal this machine's byte for byte, 3 losses agree"
