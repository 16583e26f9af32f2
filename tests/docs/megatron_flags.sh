#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every key of docs/for-megatron-users.md is one that the program takes, with the value that stands there:
# in a dense model, in one with experts, or with interleaved stages.
# usage: megatron_flags.sh REHEARSE
cd "$(dirname "$0")/../.." || exit 2
set -u
rehearse=$1
page=docs/for-megatron-users.md
keys=$(mktemp)
trap 'rm -f "$keys" "$keys".*' EXIT

# What stands between back-quotes and begins with a key; "\|" is a table's "|".
grep -oE '`(plan\.|gpus=)[^`]*=[^`]*`' "$page" | tr -d '`' | sed 's/\\|/|/g' | sort -u >"$keys"
status=0 tried=0
while read -r -a words; do
  set=()
  for word in "${words[@]}"; do set+=(--set "$word"); done
  tried=$((tried + 1)) taken=""
  : >"$keys.why"
  for scenario in 3d-8-gpus mixtral-8x7b-64 gpt3-175b-1024; do
    "$rehearse" simulate "scenarios/$scenario.json" "${set[@]}" >/dev/null 2>>"$keys.why" && { taken=1; break; }
  done
  [ -n "$taken" ] && continue
  echo "$page: ${words[*]}: no scenario takes it:"
  cat "$keys.why"
  status=1
done <"$keys"
echo "$tried keys"
[ "$tried" -gt 50 ] || { echo "too few keys were found"; status=1; }
exit $status
