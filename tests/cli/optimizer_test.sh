#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An optimizer is one thing in every command. Each that runs beside AdamW trains as AdamW does: the same losses whatever ZeRO shards,
# checkpoints that a run goes on from in any of these layouts, and files that say whose moments they hold.
# Usage: optimizer_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"data_parallel": 4, "micro_batch": 1, "global_batch": 4' \
  '"steps": 6, "data": "README.md", "weight_decay": 0.1'
cp README.md "$work"
numbers() { sed -n '/"losses"/,/]/p' "$1" | grep -o '[0-9][0-9.e+-]*'; }
run() { "$rehearse" run "$scenario" --json "$@" 2>"$work/err"; }
run >"$work/adamw.json" || fail "adamw: $(cat "$work/err")"

# trains NAME MOMENT...: what files call its moments.
trains() {
  name=$1
  shift
  step() { run --set plan.optimizer="$name" "$@"; }
  step >"$work/whole.json" || fail "$name does not run: $(cat "$work/err")"
  [ "$(numbers "$work/whole.json" | wc -l)" -eq 6 ] || fail "$name, losses: $(cat "$work/whole.json")"
  numbers "$work/whole.json" | sed -n '1p;6p' | paste -s - | awk '{ exit !($2 < 0.99 * $1) }' ||
    fail "$name learns nothing: $(numbers "$work/whole.json")"
  for stage in 1 2 3; do
    step --set plan.zero_stage=$stage >"$work/z.json" || fail "$name, ZeRO-$stage: $(cat "$work/err")"
    [ "$(numbers "$work/z.json")" = "$(numbers "$work/whole.json")" ] ||
      fail "$name, ZeRO-$stage: $(numbers "$work/z.json"), not $(numbers "$work/whole.json")"
  done
  step --set plan.zero_stage=1 --set plan.offload=optimizer >"$work/z.json" || fail "$name, offload: $(cat "$work/err")"
  [ "$(numbers "$work/z.json")" = "$(numbers "$work/whole.json")" ] || fail "$name, offload: other losses"
  [ "$(numbers "$work/adamw.json")" != "$(numbers "$work/whole.json")" ] || fail "$name is adamw"

  # Three steps sharded, and the others whole: its moments go through the files.
  step --steps 3 --set plan.zero_stage=2 --checkpoint "$work/$name" >"$work/a.json" ||
    fail "$name, --checkpoint: $(cat "$work/err")"
  step --resume "$work/$name" >"$work/b.json" || fail "$name, --resume: $(cat "$work/err")"
  [ "$(numbers "$work/whole.json")" = "$(numbers "$work/a.json"; numbers "$work/b.json")" ] || fail "$name: other losses"
  saved=$work/$name/step-000003
  held=$(grep -ao '"[a-z_]*[.]wte[.]weight"' "$saved/optimizer.safetensors" | sort | paste -sd ' ' -)
  named=$(for moment; do printf '"%s.wte.weight"\n' "$moment"; done | sort | paste -sd ' ' -)
  [ "$held" = "$named" ] || fail "$name: moments in the file are $held, not $named"
  refused 2 "state.json: plan.optimizer: the checkpoint is of \"$name\", this run has adamw" \
    run "$scenario" --resume "$work/$name"
  run --resume "$saved/model.safetensors" --steps 1 >/dev/null || fail "its weights: $(cat "$work/err")"
}
trains lion exp_avg

# What our executor does not perform is refused by one line, which names those that it does.
refused 2 "runtime rehearse has adamw" \
  simulate "$scenario" --set plan.optimizer=muon --set plan.runtime=rehearse
refused 2 " alone, not muon" \
  simulate "$scenario" --set plan.optimizer=muon --set plan.runtime=rehearse

# A plan that fits by what its optimizer holds fits in every command: llama2-13b on 8 H100s in 6.03
# bytes of state per parameter, not in 12. Every size is said, so that it is the only plan.
cat >"$work/w3.json" <<'JSON'
{"model": "llama2-13b", "cluster": "dgx-h100", "gpus": 8, "plan": {"optimizer": "adamw_8bit",
 "tensor_parallel": 2, "pipeline_parallel": 1, "context_parallel": 1, "sequence_parallel": true,
 "zero_stage": 0, "micro_batch": 1, "global_batch": 32, "sequence_length": 512,
 "recompute": "full"}}
JSON
"$rehearse" simulate "$work/w3.json" --require-fit >"$work/out" 2>&1 || fail "simulate: $(cat "$work/out")"
"$rehearse" search "$work/w3.json" --headroom 0 >"$work/out" 2>&1 || fail "search: $(cat "$work/out")"
grep -q " 1 plans*, 1 within the memory bound" "$work/out" || fail "search: $(cat "$work/out")"
"$rehearse" plan llama2-13b --gpus 8 --on dgx-h100 --sequence-length 512 --global-batch 32 \
  --set plan.optimizer=adamw_8bit --set plan.tensor_parallel=2 --set plan.sequence_parallel=true \
  --set plan.pipeline_parallel=1 --set plan.context_parallel=1 \
  --set plan.zero_stage=0 --set plan.micro_batch=1 --set plan.recompute=full >"$work/out" 2>&1
grep -q "^fits      yes" "$work/out" || fail "plan: $(cat "$work/out")"
exit $status
