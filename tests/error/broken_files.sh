#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every broken file through the command itself: its one line on stderr, nothing on stdout, exit 2.
# Usage: broken_files.sh REHEARSE. Runs in the project's root.
rehearse=$1
status=0
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
while IFS= read -r expected; do
  file=${expected%%.json*}.json
  case $file in
    */models/*) set -- tests/error/base.json --set "model=$PWD/$file"; expected="$PWD/$expected" ;;
    */clusters/*) set -- tests/error/base.json --cluster "$file" ;;
    *) set -- "$file" ;;
  esac
  said=$("$rehearse" simulate "$@" 2>&1 >"$output")
  code=$?
  if [ "$code" -ne 2 ] || [ "$said" != "rehearse: $expected" ] || [ -s "$output" ]; then
    printf '%s: exit %s\n  said:     %s\n  expected: rehearse: %s\n' "$file" "$code" "$said" "$expected"
    status=1
  fi
done <tests/error/expected.txt
exit $status
