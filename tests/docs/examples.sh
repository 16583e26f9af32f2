#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the examples of README.md, docs/*.md and docs/*/*.md and compares what they print.
# usage: examples.sh REHEARSE [PAGE...]. An example is a ```console block: "$ rehearse ..." and its output.
# A line "..." stands for any lines up to the next one that is written; the wall time is not compared.
# "~12.3 ms" is a figure that was measured on some machine: any number stands for it, in any unit.
# UPDATE_GOLDEN=1 writes what is printed into the pages, but for examples with a "...".
cd "$(dirname "$0")/../.." || exit 2
set -u
bin=$(cd "$(dirname "$1")" && pwd)
shift
[ $# -gt 0 ] || set -- README.md docs/*.md docs/*/*.md
export PATH="$bin:$PATH" COLUMNS=100
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0 examples=0

normal() { sed -E 's/ simulated in .*//; s/[[:space:]]+$//' "$1"; }

# matches EXPECTED ACTUAL: whole lines, "..." skips; of a line with a "~" the words.
matches() {
  awk 'function marked(word) { return word ~ /^\(?~/ }
       function number(word) { return word ~ /^\(?[-+]?[0-9][0-9.,]*$/ }
       function unit(word) { return word ~ /^[num]?s$/ }
       function same(want, got,    w, g, n, i, ok) {
         if (want !~ /~[-+0-9]/) return want == got
         n = split(want, w, " ")
         if (n != split(got, g, " ")) return 0
         for (i = 1; i <= n; ++i) {
           if (marked(w[i])) ok = number(g[i])
           else ok = w[i] == g[i] || (i > 1 && marked(w[i - 1]) && unit(w[i]) && unit(g[i]))
           if (!ok) return 0
         }
         return 1
       }
       NR == FNR { actual[++n] = $0; next }
       $0 == "..." { skip = 1; next }
       { if (skip) { while (at < n && !same($0, actual[at + 1])) ++at; skip = 0 }
         if (at >= n || !same($0, actual[++at])) { print "wanted: " $0; print "got:    " actual[at]; bad = 1; exit } }
       END { if (!bad && !skip && at != n) { print "more output than written: " actual[at + 1]; bad = 1 } exit bad }' \
    "$2" "$1"
}

# measured EXPECTED ACTUAL: what was printed, with the marks "~" of the same words of the same lines.
measured() {
  awk 'FILENAME == ARGV[1] { old[FNR] = $0; next }
       { n = split(old[FNR], w, " "); line = ""; rest = $0
         for (i = 1; match(rest, /[^ ]+/); ++i) {
           gap = substr(rest, 1, RSTART - 1); word = substr(rest, RSTART, RLENGTH)
           if (w[i] ~ /^\(?~/ && word !~ /~/ && word ~ /^\(?[-+]?[0-9]/) {
             sub(/  $/, " ", gap)
             sub(/^\(?/, "&~", word)
           }
           line = line gap word; rest = substr(rest, RSTART + RLENGTH)
         }
         print line rest }' "$1" "$2"
}

check() {  # check FILE COMMAND: expected text in $work/expected; what the page should have in $work/kept
  examples=$((examples + 1))
  (eval "$2") >"$work/out" 2>&1 || true
  normal "$work/out" >"$work/actual"
  normal "$work/expected" >"$work/wanted"
  cp "$work/expected" "$work/kept"
  matches "$work/wanted" "$work/actual" >"$work/differs" && return
  if [ -n "${UPDATE_GOLDEN:-}" ] && ! grep -qx '\.\.\.' "$work/expected"; then
    measured "$work/expected" "$work/out" >"$work/kept"
    echo "$1: written anew: \$ $2"
    return
  fi
  cat "$work/differs"
  echo "$1: \$ $2"
  status=1
}

for file; do
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
