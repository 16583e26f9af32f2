#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Routers with a correction bias, and experts that drop copies, through rehearse run: processes,
# checkpoints, what is refused.
# Usage: router_bias_run_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/command.sh
tiny_experts '"model_type": "glm4_moe", "num_hidden_layers": 3, "head_dim": 16,
  "moe_intermediate_size": 24, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 4,
  "topk_group": 2, "first_k_dense_replace": 1' '"expert_capacity": 4' ', "router_bias_rate": 0.01'
run() { "$rehearse" run "$scenario" --json "$@" 2>"$work/err" || fail "$*: $(cat "$work/err")"; }
weights() { echo "$work/$1/step-00000$2/model.safetensors"; }

# Threads or processes: the same losses and the same file, biases in it.
run --checkpoint "$work/whole" >"$work/1.json"
for processes in 2 4; do
  run --processes $processes --checkpoint "$work/p$processes" >"$work/p.json"
  [ "$(losses "$work/1.json")" = "$(losses "$work/p.json")" ] || fail "$processes processes: other losses"
  cmp "$(weights whole 4)" "$(weights p$processes 4)" || fail "$processes processes: another file"
done
grep -aq '"model.layers.1.mlp.gate.e_score_correction_bias":{"dtype":"F32","shape":\[8\]' "$(weights whole 4)" ||
  fail "no correction bias in the checkpoint"
grep -aq 'exp_avg.model.layers.1.mlp.gate.e_score' "$work/whole/step-000004/optimizer.safetensors" &&
  fail "a correction bias has moments"

# A run goes on with the biases that it had: two and two steps are four.
run --steps 2 --checkpoint "$work/half" >/dev/null
run --resume "$work/half" --checkpoint "$work/half" >"$work/2.json"
cmp "$(weights whole 4)" "$(weights half 4)" || fail "resumed: another file"
run --steps 2 --resume "$(weights half 2)" --set train.learning_rate=0 --set train.router_bias_rate=0 \
  --checkpoint "$work/still" >/dev/null
cmp "$(weights half 2)" "$(weights still 2)" || fail "read and written again: another file"
run --resume "$work/half/step-000002" --checkpoint "$work/other" --set train.router_bias_rate=0 >/dev/null
cmp -s "$(weights half 4)" "$(weights other 4)" && fail "a rate of 0 moves biases as one of 0.01"

# Dropped copies are counted: 8 samples of 32 tokens ask for 512 rows in a layer with experts.
run --set 'plan.expert_capacity={"drop": 0.75}' --metrics "$work/d.jsonl" >"$work/1.json"
run --set 'plan.expert_capacity={"drop": 0.75}' --processes 2 >"$work/p.json"
[ "$(losses "$work/1.json")" = "$(losses "$work/p.json")" ] || fail "dropping in 2 processes: other losses"
of_layer_1() { head -1 "$work/d.jsonl" | sed "s/.*\"$1\":\[\[[^]]*\],\[\([^]]*\)\].*/\1/" | tr ',' '+'; }
dropped=$(($(of_layer_1 expert_dropped)))
[ $(($(of_layer_1 expert_rows) + dropped)) -eq 512 ] || fail "rows and dropped ones: $(head -1 "$work/d.jsonl")"
[ $dropped -ge 128 ] || fail "each expert takes 3/4 of the mean, and only $dropped of 512 are dropped"

refused 2 'train.router_bias_rate: nothing is moved: routers of mixtral choose by their scores alone' \
  run scenarios/mixtral-8x7b-64.json --set train.router_bias_rate=0.001
exit $status
