#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Experts over several processes: the numbers of one process, whatever runs while tokens travel; and
# a process that dies while others wait for its tokens is named with op and layer, and all end.
# Usage: experts_processes_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/exec/processes/processes.sh
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 0 ;; esac
cat >"$work/s.json" <<JSON
{
  "name": "experts", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 4,
  "model": {"model_type": "qwen2_moe", "hidden_size": 32, "num_hidden_layers": 4, "vocab_size": 61,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48,
            "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
            "shared_expert_intermediate_size": 40, "decoder_sparse_step": 1,
            "norm_topk_prob": false, "tie_word_embeddings": false, "max_position_embeddings": 16},
  "plan": {"sequence_length": 16, "precision": "fp32", "micro_batch": 1, "global_batch": 8,
           "expert_capacity": 4},
  "train": {"steps": 3, "learning_rate": 0.01, "clip_norm": 1.0, "seed": 7}
}
JSON

# layout PROCESSES OVERLAP PLAN_KEYS...: the same bits in one process without overlap, and with
# OVERLAP in one process and in several, by each other's memory and by TCP alone.
layout() {
  processes=$1 overlap=--set=plan.overlap.expert_parallel=$2; shift 2
  set -- "${@/#/--set=plan.}"
  "$rehearse" run "$work/s.json" "$@" --json >"$work/one.json" 2>"$work/err" || fail "$*: $(cat "$work/err")"
  [ "$(losses "$work/one.json" | wc -l)" -eq 10 ] || fail "$*: 3 losses and 3 norms expected"
  for neighbors in 0 1 alone; do
    what="$processes processes, $overlap, REHEARSE_NEIGHBORS=$neighbors: $*"
    if [ $neighbors = alone ]; then several=(); else several=(--processes "$processes"); fi
    REHEARSE_NEIGHBORS=$neighbors "$rehearse" run "$work/s.json" "$@" "$overlap" --json "${several[@]}" \
      >"$work/many.json" 2>"$work/err" || fail "$what: $(cat "$work/err")"
    [ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] || fail "$what: other numbers"
  done
}
layout 4 false data_parallel=4 expert_parallel=4 expert_dispatch=deduplicated zero_stage=1
layout 4 '"shared"' data_parallel=4 expert_parallel=2 zero_stage=3
layout 2 '"shared"' tensor_parallel=2 sequence_parallel=true data_parallel=2 expert_parallel=2 \
  expert_tensor_parallel=2 recompute=full
layout 4 '"pair"' pipeline_parallel=2 data_parallel=2 expert_parallel=2 virtual_stages=2 \
  schedule=interleaved_1f1b extra_warmup=1 expert_dispatch=deduplicated
layout 2 '"pair"' pipeline_parallel=2 data_parallel=2 expert_parallel=2 schedule=dualpipe

# A process that is killed while it waits for tokens: most of the time all do, so that one of a few
# kills at random moments meets it in a layer. The survivors' one line has rank, op and layer.
layers=0
for i in 1 2 3 4 5 6; do
  dispatch=all_to_all
  [ $((i % 2)) -eq 0 ] && dispatch=deduplicated
  "$rehearse" run "$work/s.json" --set plan.data_parallel=4 --set plan.expert_parallel=4 --steps 1000000 \
    --set plan.expert_dispatch=$dispatch --timeout 120 --processes 4 --metrics "$work/met.jsonl" >"$work/out" 2>"$work/err" & launcher=$!
  children $launcher 4 || fail "kill $i: the children do not come"
  pids=$(pgrep -P $launcher) victim=$((i % 4))
  appears "$work/met.jsonl.partial" || fail "kill $i: no first step"
  sleep 0.$((RANDOM % 500 + 100))
  kill -KILL "$(child $launcher $victim)"
  wait $launcher; code=$?
  [ $code -eq 3 ] || fail "kill $i: exit $code"
  one_line "$work/err" "rank $victim was killed by signal 9" "kill $i"
  grep -Eq " in [0-9]+[FB][0-9]+(\[[0-9:]*\])?, layer [0-3], of step [0-9]+" "$work/err" && layers=$((layers + 1))
  gone $pids
  rm -f "$work"/met.jsonl*
done
[ $layers -gt 0 ] || fail "no kill of six named a layer: $(cat "$work/err")"
exit $status
