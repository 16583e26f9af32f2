#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model with experts through rehearse run: processes, checkpoints, rows of experts, room for them.
# Usage: experts_run_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
tiny_experts '"model_type": "mixtral", "num_hidden_layers": 2, "num_local_experts": 8,
  "sliding_window": null' '"expert_capacity": 3'
run() { "$rehearse" run "$scenario" --json "$@" 2>"$work/err" || fail "$*: $(cat "$work/err")"; }

# As bits, whether ranks are threads or processes, and whichever dispatcher's rows are counted.
run --metrics "$work/1.jsonl" >"$work/1.json"
for processes in 2 4; do
  run --processes $processes --metrics "$work/p.jsonl" >"$work/p.json"
  [ "$(losses "$work/1.json")" = "$(losses "$work/p.json")" ] || fail "$processes processes: other losses"
  rows() { sed 's/.*"expert_rows":\(\[\[.*\]\]\).*/\1/' "$1"; }
  [ "$(rows "$work/1.jsonl")" = "$(rows "$work/p.jsonl")" ] || fail "$processes processes: other rows"
done
# 8 samples of 32 tokens, 2 experts each: 512 rows in every layer.
sum=$(head -1 "$work/1.jsonl" | sed 's/.*"expert_rows":\[\[\([^]]*\)\].*/\1/' | tr ',' '+')
[ $(($sum)) -eq 512 ] || fail "rows of the first layer: $sum"
head -1 "$work/1.jsonl" | grep -q '"expert_imbalance":[1-4]\.' || fail "no imbalance: $(head -1 "$work/1.jsonl")"
run --metrics "$work/g.jsonl" --set plan.expert_dispatch=all_gather >"$work/g.json"
[ "$(rows "$work/1.jsonl" | head -1)" = "$(rows "$work/g.jsonl" | head -1)" ] || fail "all_gather: other rows"

# Slots under a planned order, which is planned for the file's runtime: that one sends by counts.
planned() { run --set plan.data_parallel=2 --set plan.pipeline_parallel=2 --set plan.expert_parallel=2 \
  --set plan.schedule=zb_1p --set plan.expert_dispatch=deduplicated "$@"; }
planned >"$work/counts.json"
planned --set plan.expert_slots=true >"$work/slots.json"
[ "$(losses "$work/counts.json")" = "$(losses "$work/slots.json")" ] || fail "slots: other losses under zb_1p"

# Seen: the heat map of all steps from the trace, and what all ranks waited for in one line. A prediction
# takes it: the file of metrics as plan.expert_routing, which changes the time by what the busiest has.
"$rehearse" run "$scenario" --trace "$work/run.trace" >"$work/run.txt" 2>"$work/err" || fail "run: $(cat "$work/err")"
grep -Eq '^experts: in the last step the busiest of 4 ranks had [1-4]\.[0-9]{2} times the mean.s tokens' "$work/run.txt" ||
  fail "no line on imbalance: $(cat "$work/run.txt")"
for picture in svg png; do
  "$rehearse" render "$work/run.trace" --experts --$picture "$work/map.$picture" || fail "no $picture of experts"
done
grep -q 'steps 1 to 4' "$work/map.svg" || fail "not all steps are drawn"
"$rehearse" simulate "$scenario" --trace "$work/predicted.trace" --set plan.runtime=rehearse \
  --set plan.expert_routing="file:$work/1.jsonl" --json >"$work/file.json" || fail "routing from a file"
grep -q "\"expert_routing\": \"file:$work/1.jsonl\"" "$work/file.json" || fail "the report does not say whose routing"
time_of() { "$rehearse" simulate "$scenario" --set plan.runtime=rehearse --set plan.expert_routing="$1" --json | sed -n 's/^ *"step_time_s": \(.*\),/\1/p'; }
[ "$(key "$work/file.json" step_time_s)" != "$(time_of balanced)" ] || fail "the measured imbalance changes nothing"
refused 2 'render: --experts: .*: no rows of experts' render "$work/predicted.trace" --experts --svg "$work/none.svg"
refused 2 'draws all steps of a run: not' render "$work/run.trace" --experts --svg "$work/none.svg" --range 0:1ms
refused 2 'expert_routing: .*1.jsonl:1: expert_rows: has 2 layers, the model 4' simulate "$scenario" \
  --set plan.expert_routing="file:$work/1.jsonl" --set model.num_hidden_layers=4
refused 2 'expert_routing: no such file' simulate "$scenario" --set plan.expert_routing=file:none.jsonl
refused 2 'expert_routing: no such file' search "$scenario" --set 'plan.expert_routing=["uniform", "file:none.jsonl"]'
refused 2 'expert_routing: "learned" is not one of balanced, uniform, file:PATH' search "$scenario" \
  --set 'plan.expert_routing=["uniform", "learned"]'

# Bytes of every op are those of the prediction, dispatches too.
"$rehearse" run "$scenario" --dry-run --trace "$work/dry.trace" >/dev/null 2>&1 || fail "dry run"
"$rehearse" compare "$work/dry.trace" "$work/run.trace" --json >"$work/compared.json" || fail "compare"

# A checkpoint has every expert by its published name, the same file in every layout.
still="--steps 1 --set train.learning_rate=0"
run $still --checkpoint "$work/ep4" >/dev/null
for layout in '"data_parallel": 4, "expert_parallel": 1' \
  '"data_parallel": 2, "tensor_parallel": 2, "sequence_parallel": true, "expert_parallel": 2'; do
  sed "s/\"data_parallel\": 4, \"expert_parallel\": 4/$layout/" "$scenario" >"$work/other.json"
  "$rehearse" run "$work/other.json" $still --checkpoint "$work/other" >/dev/null 2>"$work/err" ||
    fail "$layout: $(cat "$work/err")"
  cmp "$work/ep4/step-000001/model.safetensors" "$work/other/step-000001/model.safetensors" ||
    fail "$layout: another file"
  rm -r "$work/other"
done
grep -aq '"model.layers.1.block_sparse_moe.experts.7.w3.weight"' "$work/ep4/step-000001/model.safetensors" ||
  fail "no expert 7"

# Too little room: one line with rank, layer and the factor that would do; it does.
refused 3 'rank [0-3], layer [01]: [0-9]+ rows for the experts of one rank, room for [0-9]+: plan.expert_capacity [0-9.]+ would hold them' \
  run "$scenario" --steps 1 --set plan.expert_capacity=1
"$rehearse" run "$scenario" --steps 1 --set plan.expert_capacity=1 --processes 4 >/dev/null 2>"$work/err"
[ $? -eq 3 ] || fail "4 processes: exit $?"
one_line "$work/err" 'plan.expert_capacity [0-9.]+ would hold them' "4 processes"

# A router without numbers: training has diverged, in processes too.
for processes in 1 4; do
  refused 1 'training diverged at step [0-9]+: rank [0-3], layer 0: the router.s scores are not numbers' \
    run "$scenario" --steps 9 --set train.learning_rate=1000 --set train.weight_decay=1000 --set train.clip_norm=0 \
    --set plan.expert_capacity=8 --processes $processes
done

# An auxiliary loss over ranks that split a micro-batch's tokens: as bits, whether they are threads or
# processes. The prediction knows the sums of the counts.
split="--set train.router_auxiliary_loss=0.5 --set plan.tensor_parallel=2 --set plan.sequence_parallel=true
  --set plan.data_parallel=1 --set plan.context_parallel=2 --set plan.expert_tensor_parallel=1"
run $split >"$work/1.json"
run $split --processes 4 >"$work/p.json"
[ "$(losses "$work/1.json")" = "$(losses "$work/p.json")" ] || fail "auxiliary loss, 4 processes: other losses"
run $split --set train.router_auxiliary_loss=0 >"$work/0.json"
[ "$(losses "$work/1.json")" != "$(losses "$work/0.json")" ] || fail "the auxiliary loss changes nothing"
step_of() { "$rehearse" simulate "$scenario" $split --set plan.runtime=rehearse "$@" --json | sed -n 's/^ *"step_time_s": \(.*\),/\1/p'; }
[ "$(step_of)" != "$(step_of --set train.router_auxiliary_loss=0)" ] || fail "the sums of counts take no time"
# Small models with default keys, whose routers are as uneven as they begin: what a rank has room for
# cannot be exceeded, or is four times the mean. As one rank, as bits in processes, and a note of the
# run and of its prediction says it.
small() { "$rehearse" run "$@" --json 2>"$work/err" || fail "$*: $(cat "$work/err")"; }
room_of() { sed -n 's/.*have room for \([0-9.]*\) times their mean rows, all that can come.*/\1/p' "$1"; }
for one in c11_experts_etp:2 c12_experts_folded:4 c24_moe_pp_zb_zero3:4 c25_moe_drop_dedup:4; do
  scenario=tests/data/findings/${one%:*}.json room=${one#*:}
  small "$scenario" >"$work/ranks.json"
  [ "$(room_of "$work/err")" = "$room" ] || fail "$one: $(cat "$work/err")"
  small "$scenario" --processes 4 >"$work/p.json"
  [ "$(losses "$work/ranks.json")" = "$(losses "$work/p.json")" ] || fail "$one, 4 processes: other losses"
  small "$scenario" --gpus 1 --set plan.tensor_parallel=1 --set plan.data_parallel=1 \
    --set plan.pipeline_parallel=1 --set plan.expert_parallel=1 --set plan.expert_tensor_parallel=1 \
    --set plan.sequence_parallel=false --set plan.schedule=none --set plan.zero_stage=0 \
    --set plan.expert_dispatch=all_to_all >"$work/one.json"
  for of in ranks one; do sed -n '/"losses"/,/]/p' "$work/$of.json" | grep -o '[0-9]*\.[0-9]*' >"$work/$of.txt"; done
  paste "$work/ranks.txt" "$work/one.txt" |
    awk '{ n += $1 - $2 < 1e-5 && $2 - $1 < 1e-5 } END { exit n != 4 || NR != 4 }' ||
    fail "$one: not the losses of one rank: $(paste "$work/ranks.txt" "$work/one.txt")"
  "$rehearse" run "$scenario" --dry-run --json >"$work/dry.json" 2>"$work/err"
  [ "$(room_of "$work/err")" = "$room" ] || fail "$one, --dry-run: $(cat "$work/err")"
done
exit $status
