#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `rehearse run --device cuda` over several processes, on the DOUBLE of cudart and NCCL: the losses of one process, and a
# dead and a stuck rank named. Says nothing about a GPU. Usage: processes_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/exec/processes/processes.sh
export TMPDIR=$work  # where the double's ranks meet
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 0 ;; esac

# A model with experts: 16 tokens of a rank are dealt unevenly.
experts() {
  cat >"$1" <<JSON
{
  "name": "experts", "cluster": "clusters/dgx-a100-80gb.json", "gpus": $2,
  "model": {"model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
            "num_key_value_heads": 2, "intermediate_size": 48, "num_local_experts": 4, "num_experts_per_tok": 2,
            "vocab_size": 61, "sliding_window": null, "max_position_embeddings": 16},
  "plan": {"micro_batch": 1, "global_batch": 8, "sequence_length": 16, "precision": "fp32", "expert_capacity": 4},
  "train": {"steps": 3, "learning_rate": 0.01, "clip_norm": 1.0, "seed": 7}
}
JSON
}
# Latent attention, in a dense layer and in one with experts.
latent() {
  cat >"$1" <<JSON
{
  "name": "latent", "cluster": "clusters/dgx-a100-80gb.json", "gpus": $2,
  "model": {"model_type": "deepseek_v2", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
            "num_attention_heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 1,
            "num_experts_per_tok": 2, "moe_intermediate_size": 24, "topk_method": "greedy",
            "first_k_dense_replace": 1, "vocab_size": 61, "max_position_embeddings": 16},
  "plan": {"micro_batch": 1, "global_batch": 8, "sequence_length": 16, "precision": "fp32", "expert_capacity": 4},
  "train": {"steps": 3, "learning_rate": 0.01, "clip_norm": 1.0, "seed": 7}
}
JSON
}
# The same of four layers, with a shared expert.
shared_experts() {
  experts "$1" "$2"
  sed -i 's/"mixtral", "num_hidden_layers": 2/"qwen2_moe", "num_hidden_layers": 4/; s/"num_local_experts": 4/"num_experts": 4, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40, "decoder_sparse_step": 1, "norm_topk_prob": false/' "$1"
}
layout() {  # layout PROCESSES PLAN_KEYS...; `of`: writes the scenario; `in`: the precision
  processes=$1; shift
  set -- "${@/#/--set=plan.}" --device cuda --set plan.precision=${in:-fp32}
  ${of:-scenario} "$work/s.json" "$processes"
  "$rehearse" run "$work/s.json" "$@" --json >"$work/one.json" 2>"$work/err" || fail "one process: $*: $(cat "$work/err")"
  "$rehearse" run "$work/s.json" "$@" --json --processes "$processes" >"$work/many.json" 2>"$work/err" ||
    fail "$processes processes: $*: $(cat "$work/err")"
  [ "$(losses "$work/one.json" | wc -l)" -eq 10 ] || fail "$*: 3 losses and 3 norms expected"
  [ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] || fail "$processes processes: other numbers: $*"
}
layout 2 pipeline_parallel=2 schedule=1f1b
grep -Eq '"count": [1-9]' "$work/one.json" && grep -q '"context_bytes": 314572800' "$work/one.json" || fail "what is not the executor's is not the double's context"
layout 4 data_parallel=2 pipeline_parallel=2 zero_stage=1 schedule=zb_h1
layout 4 context_parallel=2 data_parallel=2 zero_stage=3
# Products in pieces: the numbers of whole ones (the double's products are the CPU's), and the program that is predicted.
layout 2 tensor_parallel=2 sequence_parallel=true
whole=$(losses "$work/many.json")
layout 2 tensor_parallel=2 sequence_parallel=true overlap.tensor_parallel=true
[ "$(losses "$work/many.json")" = "$whole" ] || fail "products in pieces: other numbers than whole ones"
"$rehearse" run "$work/s.json" --device cuda --set plan.precision=fp32 --set plan.tensor_parallel=2 --set plan.sequence_parallel=true \
  --set plan.overlap.tensor_parallel=true --dry-run --json >"$work/dry.json" 2>"$work/err" || fail "pieces are not predicted: $(cat "$work/err")"
[ "$(key "$work/dry.json" schedule_hash)" = "$(key "$work/many.json" schedule_hash)" ] || fail "products in pieces: another program is predicted"
# 16 bits; in fp16 a scale that is too large: every step is left out, in every process.
in=fp16 layout 2 data_parallel=2 zero_stage=3
grep -q "is run as" "$work/err" && fail "fp16 is not run as fp16: $(cat "$work/err")"
[ "$(key "$work/many.json" skipped_steps)" = 0 ] || fail "fp16: steps were left out"
for processes in 1 2; do
  "$rehearse" run "$work/s.json" --device cuda --set plan.precision=fp16 --set plan.data_parallel=2 --set train.loss_scale=1e12 \
    --processes $processes --json >"$work/skips.json" 2>"$work/err" || fail "a scale that is too large, $processes processes: $(cat "$work/err")"
  [ "$(key "$work/skips.json" skipped_steps)" = 3 ] || fail "a scale that is too large, $processes processes: $(key "$work/skips.json" skipped_steps) steps left out"
done
# A checkpoint has the scale.
for steps in 2 3; do
  "$rehearse" run "$work/s.json" --device cuda --set plan.precision=fp16 --set plan.data_parallel=2 --processes 2 --steps $steps \
    --checkpoint "$work/at$steps" --json >"$work/$steps.json" 2>"$work/err" || fail "fp16, $steps steps: $(cat "$work/err")"
done
"$rehearse" run "$work/s.json" --device cuda --set plan.precision=fp16 --set plan.data_parallel=2 --steps 3 --resume "$work/at2" \
  --json >"$work/on.json" 2>"$work/err" || fail "fp16 goes on: $(cat "$work/err")"
[ "$(losses "$work/on.json" | tail -1)" = "$(losses "$work/3.json" | tail -1)" ] || fail "fp16 goes on with other numbers"
of=experts layout 2 data_parallel=2 expert_parallel=2
of=experts layout 4 data_parallel=2 pipeline_parallel=2 expert_parallel=2 zero_stage=1 schedule=zb_h1
of=experts layout 2 data_parallel=2 expert_parallel=2 expert_dispatch=all_gather
of=experts layout 4 data_parallel=4 expert_parallel=2 expert_dispatch=deduplicated
of=latent layout 2 tensor_parallel=2 sequence_parallel=true
of=latent layout 2 context_parallel=2
of=latent layout 2 data_parallel=2 expert_parallel=2 zero_stage=1
# The numbers are the CPU's: losses and norms of the last layout, to 1e-5.
latent "$work/s.json" 2
"$rehearse" run "$work/s.json" --device cpu --json --set plan.data_parallel=2 --set plan.expert_parallel=2 \
  --set plan.zero_stage=1 >"$work/cpu.json" 2>"$work/err" || fail "latent attention on the CPU: $(cat "$work/err")"
paste <(losses "$work/one.json") <(losses "$work/cpu.json") |
  awk '$1 + 0 > 0 { ++n; d = ($1 - $2) / $2; if (d * d > 1e-10) bad = 1 } END { exit bad || n != 6 }' ||
  fail "latent attention: other numbers than the CPU's: $(paste <(losses "$work/one.json") <(losses "$work/cpu.json"))"
# Tokens that travel beside a shared expert, and pairs: streams of their own.
pairs=(pipeline_parallel=2 virtual_stages=2 schedule=interleaved_1f1b extra_warmup=1 'overlap.expert_parallel="pair"')
of=shared_experts layout 2 data_parallel=2 expert_parallel=2 'overlap.expert_parallel="shared"'
of=shared_experts layout 4 data_parallel=2 expert_parallel=2 "${pairs[@]}"
# Trials of one process that take longer than an op may: the others wait for it.
mkdir "$work/trials"
scenario "$work/s.json" 2
CUDA_DOUBLE_SLOW_TRIALS=$work/trials "$rehearse" run "$work/s.json" --device cuda --set plan.precision=bf16 --set plan.data_parallel=2 \
  --processes 2 --timeout 6 --json >"$work/slow.json" 2>"$work/err" || fail "slow trials: $(cat "$work/err")"
[ -d "$work/trials/slow" ] || fail "slow trials: none was slow"
# Too small slots: one line with rank, layer and factor, from processes too.
experts "$work/s.json" 2
for processes in 1 2; do
  "$rehearse" run "$work/s.json" --device cuda --set plan.data_parallel=2 --set plan.expert_parallel=2 \
    --set plan.expert_capacity=0.5 --processes $processes >"$work/out" 2>"$work/err"
  [ $? -eq 3 ] || fail "too small slots, $processes processes: not exit 3"
  one_line "$work/err" "rank [01], layer [01]: [0-9]+ rows for the experts of one rank, slots of 8: plan.expert_capacity [0-9.]+ would hold them" "too small slots"
done

# Experts that are cut and not dealt: the CPU's numbers, to 1e-5.
experts "$work/s.json" 2
cut=(--set plan.tensor_parallel=2 --set plan.sequence_parallel=true --json)
"$rehearse" run "$work/s.json" --device cpu "${cut[@]}" >"$work/cpu.json" 2>"$work/err" || fail "cut experts on the CPU: $(cat "$work/err")"
of=experts layout 2 tensor_parallel=2 sequence_parallel=true
paste <(losses "$work/one.json") <(losses "$work/cpu.json") |
  awk '$1 + 0 > 0 { ++n; d = ($1 - $2) / $2; if (d * d > 1e-10) bad = 1 } END { exit bad || n != 6 }' ||
  fail "cut experts: other numbers than the CPU's"
# A router without numbers: training has diverged.
for processes in 1 2; do
  "$rehearse" run "$work/s.json" --device cuda --set plan.data_parallel=2 --set plan.tensor_parallel=1 --set plan.expert_parallel=2 \
    --set train.learning_rate=1000 --set train.weight_decay=1000 --set train.clip_norm=0 --steps 9 --set plan.expert_capacity=8 \
    --processes $processes >"$work/out" 2>"$work/err"
  [ $? -eq 1 ] || fail "a router without numbers, $processes processes: not exit 1"
  one_line "$work/err" "training diverged at step [0-9]+: rank [01], layer 0: the router's scores are not numbers" "no numbers"
done

# "auto" says why it leaves a GPU aside.
scenario "$work/s.json" 4
"$rehearse" run "$work/s.json" --set plan.data_parallel=4 --set plan.precision=fp32 --steps 1 --json >"$work/auto.json" 2>"$work/err" ||
  fail "auto: $(cat "$work/err")"
grep -q '"backend": "cuda"' "$work/auto.json" || fail "auto does not take the GPU"
[ -s "$work/err" ] && fail "auto on a GPU says: $(cat "$work/err")"
CUDA_DOUBLE_FAILS=1 "$rehearse" run "$work/s.json" --set plan.data_parallel=4 --set plan.precision=fp32 --steps 1 --json \
  >"$work/auto.json" 2>"$work/err" || fail "auto without a GPU: $(cat "$work/err")"
grep -q '"backend": "cpu"' "$work/auto.json" || fail "auto does not fall back"
one_line "$work/err" "run: --device auto: the CPU takes it: no CUDA device: the driver is for CUDA 12.4, this build needs [0-9.]+: a newer driver, or a build with CUDA 12$" "auto falls back"
# Every process of another launcher says so: the GPU may be there for its partners.
scenario "$work/s.json" 2
for k in 0 1; do
  RANK=$k WORLD_SIZE=2 LOCAL_RANK=$k MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 20000)) CUDA_DOUBLE_FAILS=1 "$rehearse" \
    run "$work/s.json" --set plan.data_parallel=2 --set plan.precision=fp32 --steps 1 >"$work/$k.out" 2>"$work/$k.err" &
done
wait
for k in 0 1; do
  grep -q "run: --device auto: the CPU takes it: no CUDA device: " "$work/$k.err" || fail "process $k falls back in silence: $(cat "$work/$k.err")"
done
# More processes than devices.
scenario "$work/s.json" 4
CUDA_DOUBLE_DEVICES=2 "$rehearse" run "$work/s.json" --set plan.data_parallel=4 --device cuda --processes 4 >"$work/out" 2>"$work/err" &&
  fail "four processes share two devices"
grep -q "process [23] of this machine (LOCAL_RANK) has no device: there are 2" "$work/err" || fail "four processes on two devices: $(cat "$work/err")"

# Two ranks in a process: NCCL wants one.
scenario "$work/s.json" 4
"$rehearse" run "$work/s.json" --set plan.data_parallel=4 --device cuda --processes 2 >"$work/out" 2>"$work/err" &&
  fail "two ranks in a process are taken"
one_line "$work/err" "NCCL wants a process per rank" "two ranks in a process"

# Bad input is refused before a process starts.
scenario "$work/s.json" 4
"$rehearse" run "$work/s.json" --set plan.pipeline_parallel=4 --device cuda --processes 2 >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || fail "two processes for four ranks: not refused"
one_line "$work/err" "NCCL wants a process per rank, or one for all: 4 ranks, 2 processes" "processes"
experts "$work/s.json" 1
sed -i 's/"vocab_size"/"head_dim": 320, "vocab_size"/' "$work/s.json"
"$rehearse" run "$work/s.json" --device cuda >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || fail "heads of 320 columns: not refused"
one_line "$work/err" "model.head_dim: heads of 320 columns" "wide heads"
experts "$work/s.json" 2
"$rehearse" run "$work/s.json" --device cuda --set plan.data_parallel=2 --set plan.expert_parallel=2 --set plan.expert_slots=false \
  >"$work/out" 2>"$work/err" || fail "slots that are not asked for: $(cat "$work/err")"
grep -q "plan.expert_slots: false is run as true" "$work/err" || fail "slots are not said: $(cat "$work/err")"

# A rank dies, a rank stops: named, and all end.
scenario "$work/s.json" 2
for signal in KILL STOP; do
  "$rehearse" run "$work/s.json" --set plan.pipeline_parallel=2 --set plan.precision=fp32 --device cuda --steps 1000000 \
    --timeout 10 --metrics "$work/met.jsonl" --processes 2 --flight "$work/flight" >"$work/out" 2>"$work/err" & launcher=$!
  children $launcher 2 || fail "$signal: the children do not come"
  pids=$(pgrep -P $launcher)
  appears "$work/met.jsonl.partial" || fail "$signal: no first step"
  kill -$signal "$(child $launcher 1)"
  wait $launcher; code=$?
  [ $code -eq 3 ] || fail "$signal: exit $code"
  one_line "$work/err" "rank 1 " "$signal"
  if [ $signal = KILL ]; then says="killed by signal 9|its connection closed"; else says="is stopped|not been heard of"; fi
  one_line "$work/err" "$says" "$signal"
  gone $pids
  rm -rf "$work/flight" "$work"/met.jsonl*
done

# A rank dies while tokens travel beside something.
shared_experts "$work/s.json" 4
"$rehearse" run "$work/s.json" --device cuda --set plan.data_parallel=2 --set plan.expert_parallel=2 "${pairs[@]/#/--set=plan.}" \
  --steps 1000000 --timeout 120 --metrics "$work/met.jsonl" --processes 4 --flight "$work/flight" >"$work/out" 2>"$work/err" & launcher=$!
children $launcher 4 || fail "pairs: the children do not come"
pids=$(pgrep -P $launcher)
appears "$work/met.jsonl.partial" || fail "pairs: no first step"
kill -KILL "$(child $launcher 1)"
wait $launcher; code=$?
[ $code -eq 3 ] || fail "pairs: exit $code"
one_line "$work/err" "rank 1 .*(killed by signal 9|its connection closed)" "a rank of a pair is killed"
gone $pids
rm -rf "$work/flight"

exit $status
