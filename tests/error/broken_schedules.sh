#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every broken schedule file through `rehearse check`: its one line on stderr, nothing on stdout,
# exit 2. Usage: broken_schedules.sh REHEARSE. Runs in the project's root.
rehearse=$1
status=0
output=$(mktemp) || exit 1
trap 'rm -f "$output"' EXIT
for file in tests/error/schedules/*; do
  said=$("$rehearse" check "$file" 2>&1 >"$output")
  code=$?
  expected=$(grep -F "$file:" tests/error/schedules.txt)
  if [ "$code" -ne 2 ] || [ "$said" != "rehearse: $expected" ] || [ -s "$output" ]; then
    printf '%s: exit %s\n  said:     %s\n  expected: rehearse: %s\n' "$file" "$code" "$said" "$expected"
    status=1
  fi
done
exit $status
