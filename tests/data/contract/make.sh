#!/bin/sh
# Makes a version's contract fixtures: every report, and files that later versions are to open.
# Usage: make.sh REHEARSE FOLDER, in the project's root; FOLDER (0.1 was made so) holds reports.txt and the inputs it names.
set -eu
rehearse=$1 here=$2
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

# The files first: reports are made of them.
"$rehearse" calibrate --quick -o "$here/machine.json" >"$new/said"
"$rehearse" run "$here/tiny.json" --dry-run --trace "$here/predicted.trace" >"$new/said"
rm -rf "$here/checkpoint"
"$rehearse" run "$here/tiny.json" --trace "$here/measured.trace" --checkpoint "$here/checkpoint" >"$new/said"
# What goes on from there: the steps after the checkpoint.
"$rehearse" run "$here/tiny.json" --resume "$here/checkpoint" --steps 4 --metrics "$here/resumed.jsonl" >"$new/said"
"$rehearse" schedule --schedule interleaved_1f1b --stages 2 --microbatches 4 --format csv >"$here/schedule.csv"
"$rehearse" schedule --schedule zb_h1 --stages 2 --microbatches 3 --format json --level full >"$here/schedule.json"

mkdir -p "$here/reports"
grep -v '^#' "$here/reports.txt" | while read -r file code arguments; do
  arguments=$(printf '%s' "$arguments" | sed "s|{here}|$here|g; s|{new}|$new|g")
  got=0
  # shellcheck disable=SC2086 -- words
  "$rehearse" $arguments >"$new/stdout" || got=$?
  [ "$got" -eq "$code" ] || { echo "make.sh: exit $got instead of $code: $arguments"; exit 1; }
  [ -e "$new/$file" ] || mv "$new/stdout" "$here/reports/$file"  # a file that it writes is among the files above
done
"$rehearse" --version | head -1 >"$here/version.txt"
