#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the examples of README.md and docs/*.md and compares what they print.
# usage: examples.sh REHEARSE. An example is a ```console block: "$ rehearse ..." and its output. A
# line "..." stands for any lines up to the next one that is written; the wall time is not compared.
# UPDATE_GOLDEN=1 writes what is printed into the pages, but for examples with a "...".
cd "$(dirname "$0")/../.." || exit 2
set -u
bin=$(cd "$(dirname "$1")" && pwd)
export PATH="$bin:$PATH" COLUMNS=100
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0 examples=0

normal() { sed -E 's/ simulated in .*//; s/[[:space:]]+$//' "$1"; }

# matches EXPECTED ACTUAL: whole lines, "..." skips.
matches() {
  awk 'NR == FNR { actual[++n] = $0; next }
       $0 == "..." { skip = 1; next }
       { if (skip) { while (at < n && actual[at + 1] != $0) ++at; skip = 0 }
         if (at >= n || actual[++at] != $0) { print "wanted: " $0; print "got:    " actual[at]; bad = 1; exit } }
       END { if (!bad && !skip && at != n) { print "more output than written: " actual[at + 1]; bad = 1 } exit bad }' \
    "$2" "$1"
}

check() {  # check FILE COMMAND: expected text in $work/expected; what the page should have in $work/kept
  examples=$((examples + 1))
  (eval "$2") >"$work/out" 2>&1 || true
  normal "$work/out" >"$work/actual"
  normal "$work/expected" >"$work/wanted"
  cp "$work/expected" "$work/kept"
  matches "$work/wanted" "$work/actual" >"$work/differs" && return
  if [ -n "${UPDATE_GOLDEN:-}" ] && ! grep -qx '\.\.\.' "$work/expected"; then
    cp "$work/out" "$work/kept"
    echo "$1: written anew: \$ $2"
    return
  fi
  cat "$work/differs"
  echo "$1: \$ $2"
  status=1
}

for file in README.md docs/*.md; do
  inside=0 command=""
  : >"$work/page"
  while IFS= read -r line; do
    case "$inside:$line" in
      '0:```console') inside=1; command="" ;;
      '1:```' | 1:'$ '*)
        if [ -n "$command" ]; then
          check "$file" "$command"
          cat "$work/kept" >>"$work/page"
        fi
        if [ "$line" = '```' ]; then inside=0 command=""; else command=${line#'$ '}; fi
        : >"$work/expected" ;;
      1:*)
        printf '%s\n' "$line" >>"$work/expected"
        continue ;;
    esac
    printf '%s\n' "$line" >>"$work/page"
  done <"$file"
  if [ -n "${UPDATE_GOLDEN:-}" ] && ! cmp -s "$work/page" "$file"; then cat "$work/page" >"$file"; fi
done
echo "$examples examples"
[ "$examples" -gt 0 ] || { echo "no examples were found"; status=1; }
exit $status
