#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fails if a test stands in no part of `./run sanitize`, or in two; if a part names a test that there is not, or is said
# to take more than an hour; and if docs/measurements/sanitizers.md has no row for a part, or for one that is gone.
# Usage: check_parts.sh PARTS TEST...; tests are those that this build has, as ctest names them.
cd "$(dirname "$0")/../.." || exit 2
parts=$1; shift
status=0
complain() { echo "$parts: $*"; status=1; }

rows=$(awk '/^[^ #]/ { part = $1; preset = $2 } /^ +[^ #]/ { for (i = 1; i <= NF; ++i) print preset, part, $i }' "$parts")
while read -r part preset minutes; do
  case $preset in dev | tsan | -) ;; *) complain "$part: no preset: $preset" ;; esac
  [ "$minutes" -le 60 ] || complain "$part takes $minutes min: a part takes an hour at most"
done < <(grep '^[^ #]' "$parts")

# twice WHICH: those that stand there a second time.
twice() { awk -v which="$1" '$1 ~ which { print $3 }' <<<"$rows" | sort | uniq -d; }
for test in $(twice '^(dev|-)$'); do complain "$test stands there twice"; done
in_part=" $(awk '$1 != "tsan" { print $3 }' <<<"$rows" | tr '\n' ' ') "
for test in "$@"; do
  case $in_part in *" $test "*) ;; *) complain "$test is in no part: name one, or say under none why not" ;; esac
done
for test in $(awk '{ print $3 }' <<<"$rows" | sort -u); do
  case " $* " in
    *" $test "*) ;;
    *) case $test in  # what only some machines can build
      cuda_* | gpu_*) ;;
      *) complain "there is no test $test" ;;
    esac ;;
  esac
done

page=docs/measurements/sanitizers.md
wanted=$( (awk '/^[^ #]/ && $2 != "-" { print "sanitize", $1 }' "$parts"
  awk '/^[^ #]/ { print "fuzz", $1 }' tests/fuzz/parts.txt) | sort)
written=$(sed -n 's/^| `\(sanitize [a-z_]*\|fuzz [a-z_]*\)` |.*/\1/p' $page | sort)
[ "$wanted" = "$written" ] ||
  complain "$page has other parts in its table: $(diff <(echo "$wanted") <(echo "$written") | grep '^[<>]' | tr '\n' ' ')"
exit $status
