#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check_parts.sh finds what it is there for: faults planted in a copy of the table.
cd "$(dirname "$0")/../.." || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
status=0
parts=tests/sanitize/parts.txt
tests=$(awk '/^ +[^ #]/' $parts)

# check WHAT SED TEST...: the table, edited so, with these tests beside its own, is refused, and it says WHAT.
check() {
  what=$1 edit=$2; shift 2
  sed "$edit" $parts >"$work/parts.txt"
  # shellcheck disable=SC2086
  said=$(bash tests/sanitize/check_parts.sh "$work/parts.txt" $tests "$@") &&
    { echo "check_parts.sh takes it, and should say: $what"; status=1; return; }
  grep -qF -- "$what" <<<"$said" || { echo "check_parts.sh says: $said"; echo "and should say: $what"; status=1; }
}
# shellcheck disable=SC2086
bash tests/sanitize/check_parts.sh $parts $tests || { echo "check_parts.sh refuses the table as it is"; status=1; }
check "new_test is in no part" '' new_test
check "ir_test is in no part" 's/ ir_test / /'
check "ir_test stands there twice" 's/^  cuda_double_test/  ir_test cuda_double_test/'
check "there is no test gone_test" 's/ ir_test / ir_test gone_test /'
check "takes 61 min" 's/^costs dev [0-9]*/costs dev 61/'
check "other parts in its table: < sanitize extra" 's/^costs dev/extra dev 5\ncosts dev/'
check "no preset: msan" 's/^costs dev/costs msan/'
exit $status
