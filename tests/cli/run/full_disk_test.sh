#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What cannot be written: a full disk is exit 3 whichever command writes, a place that is none is
# exit 2; each in one line, in which names of thousands of letters are short. Usage:
# full_disk_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
"$rehearse" simulate pipeline-1f1b --trace "$work/a.trace" >/dev/null || fail "no trace"

# written CODE TEXT PLACE: every command that writes a file, to PLACE.
written() {
  code=$1 text=$2 place=$3
  set -- "simulate pipeline-1f1b --trace $place" "render $work/a.trace --svg $place" \
    "render $work/a.trace --png $place" "view $work/a.trace --png $place" \
    "plan llama3-8b --gpus 8 --on dgx-h100 --save $place" \
    "run tiny-gpt-4-ranks --dry-run --trace $place" "run tiny-gpt-4-ranks --steps 1 --trace $place" \
    "run tiny-gpt-4-ranks --steps 1 --metrics $place"
  for to in csv perfetto chrome; do set -- "$@" "export $work/a.trace --to $to $place"; done
  for command; do
    "$rehearse" $command >"$work/out" 2>"$work/err"
    got=$?
    [ "$got" -eq "$code" ] || fail "exit $got instead of $code: $command"
    [ "$(grep -c "cannot write: $text" "$work/err")" -eq 1 ] || fail "$command: $(cat "$work/err")"
  done
}
if [ -w /dev/full ]; then
  written 3 "No space left on device" /dev/full
  "$rehearse" list models >/dev/full 2>"$work/err"
  [ $? -eq 3 ] || fail "standard output: not exit 3"
else
  echo "SKIPPED: no /dev/full here"
fi
written 2 "No such file or directory" "$work/none/at/all"
# A limit of the shell is no other than a disk's.
( ulimit -f 1 && "$rehearse" simulate pipeline-1f1b --trace "$work/b.trace" >/dev/null 2>&1; exit $? )
[ $? -eq 3 ] || fail "ulimit -f: not exit 3"
[ -e "$work/b.trace" ] && fail "half a trace"

# Long names: the line says how they begin and end.
name=$(printf 'é%.0s' $(seq 1500))
for command in "simulate $name" "$name" "simulate pipeline-1f1b --$name" "list $name" \
  "schedule --schedule $name --stages 4 --microbatches 4" "render $name --text" \
  "schedule --schedule 1f1b --stages 4 --microbatches 4 --times F=$name" \
  "plan $name --gpus 8 --on dgx-h100" "export $work/a.trace --to csv /tmp/$name" "check $name" \
  "run tiny-gpt-4-ranks --data $name" "calibrate --device $name"; do
  refused 2 "\.\.\." $command
  [ "$(wc -c <"$work/err")" -lt 700 ] || fail "$(echo "$command" | cut -c1-40): $(wc -c <"$work/err") bytes"
  iconv -f UTF-8 -t UTF-8 "$work/err" >/dev/null || fail "$(echo "$command" | cut -c1-40): half a letter"
done
exit $status
