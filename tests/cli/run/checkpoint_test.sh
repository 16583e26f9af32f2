#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checkpoints of rehearse run as people use them: go on, in any layout, after Ctrl-C, kill -9, a full
# disk; files that others read. Usage: checkpoint_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"data_parallel": 2, "pipeline_parallel": 2, "schedule": "1f1b", "zero_stage": 1,
      "micro_batch": 1, "global_batch": 4' '"steps": 6, "data": "README.md"'
cp README.md "$work"
tp4="--set plan.tensor_parallel=4 --set plan.pipeline_parallel=1 --set plan.data_parallel=1
     --set plan.zero_stage=0 --set plan.schedule=none"

# Losses alone.
numbers() { sed -n '/"losses"/,/]/p' "$1" | grep -o '[0-9][0-9.e+-]*'; }
run() { "$rehearse" run "$scenario" --json "$@" 2>"$work/err"; }

# Six steps at once; three, and then the others: the same losses to the last digit.
run >"$work/whole.json" || fail "does not run: $(cat "$work/err")"
run --steps 3 --checkpoint "$work/c" --set train.checkpoint_every=2 >"$work/a.json" || fail "--checkpoint: $(cat "$work/err")"
[ "$(ls "$work/c" | tr '\n' ' ')" = "latest step-000002 step-000003 " ] || fail "wrote $(ls "$work/c")"
run --resume "$work/c" --metrics "$work/m.jsonl" >"$work/b.json" || fail "--resume: $(cat "$work/err")"
[ "$(numbers "$work/whole.json")" = "$(numbers "$work/a.json"; numbers "$work/b.json")" ] || fail "other losses"
[ "$(numbers "$work/b.json" | wc -l)" -eq 3 ] || fail "steps after --resume: $(numbers "$work/b.json")"
[ "$(wc -l <"$work/m.jsonl")" -eq 3 ] || fail "metrics after --resume: $(cat "$work/m.jsonl")"
grep -q '^{"step":3,' "$work/m.jsonl" || fail "the first step after --resume is not 3"
run --resume "$work/c/step-000002" --steps 3 >"$work/d.json" || fail "--resume of a step: $(cat "$work/err")"
[ "$(numbers "$work/d.json")" = "$(numbers "$work/whole.json" | sed -n 3p)" ] || fail "other third loss"
# Optimizer state in host memory is the same state.
run --resume "$work/c" --set plan.offload=optimizer >"$work/o.json" || fail "offload: $(cat "$work/err")"
[ "$(numbers "$work/o.json")" = "$(numbers "$work/b.json")" ] || fail "other losses with offload"
# From dp2 x pp2 to tp4.
run --resume "$work/c" $tp4 >"$work/e.json" || fail "tp4: $(cat "$work/err")"
numbers "$work/e.json" >"$work/e"
numbers "$work/b.json" | paste - "$work/e" | awk '{ d = $1 / $2 - 1; if (d > 1e-5 || d < -1e-5) exit 1 }' ||
  fail "tp4 goes elsewhere: $(numbers "$work/b.json" | paste - "$work/e")"
# Weights alone begin at step 0.
run --resume "$work/c/step-000003/model.safetensors" --steps 1 >"$work/f.json" || fail "weights: $(cat "$work/err")"
grep -q '"first_step": 0' "$work/f.json" || fail "weights alone begin elsewhere"

# What is wrong is said before anything is trained.
printf x >"$work/file"
refused 2 "has done 3 steps, train.steps is 3: nothing is left to do" run "$scenario" --resume "$work/c" --steps 3
refused 2 "no such file or folder" run "$scenario" --resume "$work/none"
refused 2 "holds no checkpoint" run "$scenario" --resume "$work"
refused 2 "model.hidden_size: the checkpoint's model has 32, this run's 64" run "$scenario" --resume "$work/c" --set model.n_embd=64
refused 2 "wte.weight: has shape \[256, 32\], the model's is \[300, 32\]" run "$scenario" \
  --resume "$work/c/step-000003/model.safetensors" --set model.vocab_size=300
refused 2 "cannot write" run "$scenario" --checkpoint "$work/file/c" --metrics "$work/never"
refused 2 "cannot write" run "$scenario" --trace /no/such/folder/t.trace --metrics "$work/never"
refused 2 "cannot write" run "$scenario" --trace "$work" --metrics "$work/never"
refused 2 "cannot write" run "$scenario" --metrics "$work"
[ -e "$work/never" ] && fail "it trained before it saw that it cannot write"
cp -r "$work/c" "$work/cut"
head -c 5000 "$work/c/step-000003/optimizer.safetensors" >"$work/cut/step-000003/optimizer.safetensors"
refused 2 "cut/step-000003/optimizer.safetensors: .*cut short" run "$scenario" --resume "$work/cut"
run --resume "$work/cut/step-000002" >/dev/null || fail "the checkpoint before a broken one: $(cat "$work/err")"

# Killed between two renames: the newest whole step, and which it is; a flipped byte is named.
cp -r "$work/c" "$work/stale"
echo step-000002 >"$work/stale/latest"
run --resume "$work/stale" >"$work/g.json" || fail "a stale latest: $(cat "$work/err")"
one_line "$work/err" 'stale/latest: names "step-000002"; the run goes on from step-000003' "a stale latest"
[ "$(numbers "$work/g.json")" = "$(numbers "$work/b.json")" ] || fail "a stale latest: other losses"
flip() { printf '\377' | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
cp -r "$work/c" "$work/bit"
flip "$work/bit/step-000003/model.safetensors" $(($(stat -c %s "$work/bit/step-000003/model.safetensors") - 2))
refused 2 "bit/step-000003/model.safetensors: wte.weight: not as it was written" run "$scenario" --resume "$work/bit"
# Any file name may be trained on.
cp README.md "$work/$(printf 'r\351sum\351')"
run --steps 1 --data "$work/$(printf 'r\351sum\351')" --checkpoint "$work/name" >/dev/null || fail "a name: $(cat "$work/err")"
run --steps 2 --resume "$work/name" >/dev/null || fail "after a name: $(cat "$work/err")"

# Metrics that cannot be written are not left, and replace nothing. (Blocks of 512 bytes.)
echo old >"$work/old.jsonl"
( ulimit -f 1 && "$rehearse" run "$scenario" --metrics "$work/old.jsonl" >/dev/null 2>"$work/err" )
got=$?
[ $got -eq 3 ] || fail "metrics on a full disk: exit $got"
one_line "$work/err" "old.jsonl: cannot write: File too large" "metrics on a full disk"
[ "$(cat "$work/old.jsonl")" = old ] || fail "metrics on a full disk: the old ones are gone"
[ -e "$work/old.jsonl.partial" ] && fail "metrics on a full disk: a part is left"

# A full disk: exit 3, one line, no half checkpoint, the last one stands. (Blocks of 512 bytes.)
( ulimit -f 64 && refused 3 "step-000006.tmp/model.safetensors: cannot write: File too large" run "$scenario" \
    --resume "$work/c" --checkpoint "$work/c" --metrics "$work/full.jsonl" && exit $status ) || status=1
[ "$(ls "$work/c" | tr '\n' ' ')" = "latest step-000002 step-000003 " ] || fail "left $(ls "$work/c")"
[ "$(cat "$work/c/latest")" = step-000003 ] || fail "latest is $(cat "$work/c/latest")"
[ "$(wc -l <"$work/full.jsonl")" -eq 3 ] || fail "metrics of a failed run"
if unshare -rm true 2>/dev/null; then
  mkdir "$work/small"
  unshare -rm sh -c '
    mount -t tmpfs -o size=900k tmpfs "$2" && "$1" run "$3" --steps 1 --checkpoint "$2" >/dev/null &&
    { "$1" run "$3" --resume "$2" --checkpoint "$2" >/dev/null 2>"$4"; [ $? -eq 3 ]; } &&
    grep -q "cannot write: No space left on device" "$4" && "$1" run "$3" --resume "$2" >/dev/null
  ' sh "$rehearse" "$work/small" "$scenario" "$work/err" || fail "a full tmpfs: $(cat "$work/err")"
else
  echo "SKIPPED: a full tmpfs: no user namespaces here"
fi

# Ctrl-C: the step ends, the checkpoint is written, exit 130; kill -9: what was written stands. It may
# fall before the rename of a whole step, or between it and that of `latest` (as if it always had): a
# run goes on from the newest whole step, whatever the names say.
interrupted() {  # SIGNAL CODE FIRST: once step FIRST is written
  rm -rf "$work/k" "$work/k.jsonl"
  "$rehearse" run "$scenario" --steps 100000 --set train.checkpoint_every=5 --checkpoint "$work/k" \
    --metrics "$work/k.jsonl" >"$work/out" 2>"$work/err" &
  pid=$!
  appears "$work/k/$3" || fail "$1: no $3 is written"
  kill -"$1" $pid
  wait $pid
  got=$?
  [ "$got" -eq "$2" ] || fail "$1: exit $got: $(cat "$work/err")"
  [ "$1" = KILL ] && echo step-000005 >"$work/k/latest"
  named=$(sed 's/step-0*//' "$work/k/latest")
  "$rehearse" run "$scenario" --resume "$work/k" --steps 1 >/dev/null 2>"$work/err2"
  done=$(sed -n 's/.*: has done \([0-9]*\) steps, train.steps is 1: .*/\1/p' "$work/err2")
  [ "${done:-0}" -ge "$named" ] || fail "after $1: goes on from $done, latest is $named: $(cat "$work/err2")"
  "$rehearse" run "$scenario" --resume "$work/k" --steps $((done + 1)) >/dev/null 2>"$work/err2" ||
    fail "after $1: $(cat "$work/err2")"
}
interrupted INT 130 latest
grep -q "stopped after step $done, checkpoint in $work/k" "$work/err" || fail "INT: $(cat "$work/err")"
[ "$(wc -l <"$work/k.jsonl")" -eq "$done" ] || fail "INT: metrics of $(wc -l <"$work/k.jsonl") of $done steps"
interrupted TERM 143 latest
interrupted HUP 129 latest
interrupted KILL 137 step-000010
[ -s "$work/k.jsonl.partial" ] || fail "KILL: no metrics are left"
[ -e "$work/k.jsonl" ] && fail "KILL: metrics look finished"

# A reader that is not ours.
if command -v python3 >/dev/null; then
  python3 - "$work/c/step-000003/model.safetensors" "$work/c/step-000003/optimizer.safetensors" <<'PY' || fail "python reads otherwise"
import json, math, struct, sys
for path in sys.argv[1:]:
    blob = open(path, "rb").read()
    n, = struct.unpack("<Q", blob[:8])
    header = json.loads(blob[8:8 + n])
    assert (8 + n) % 8 == 0 and header.pop("__metadata__") == {"format": "pt"}
    end = 0
    for name, t in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, stop = t["data_offsets"]
        assert begin == end and t["dtype"] == "F32" and stop - begin == 4 * math.prod(t["shape"]), name
        values = struct.unpack("<%df" % math.prod(t["shape"]), blob[8 + n + begin:8 + n + stop])
        assert all(map(math.isfinite, values)) and any(values), name
        if name == "wte.weight":
            assert t["shape"] == [256, 32] and 0.01 < (sum(v * v for v in values) / len(values)) ** 0.5 < 0.03
        end = stop
    assert 8 + n + end == len(blob)
    assert len(header) == (52 if "model" in path else 104), len(header)
PY
else
  echo "SKIPPED: reading with python3: it is not here"
fi
exit $status
