#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the timelines and the sweep of docs/experts.md from the page's own commands.
# usage: docs/pictures/experts.sh REHEARSE      run it in the project's root
set -euo pipefail
rehearse=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

draw() {  # draw NAME TITLE OVERRIDE...: two forwards of the first position
  "$rehearse" simulate scenarios/qwen3-235b-256.json --set plan.expert_parallel=8 \
    --set plan.expert_dispatch=all_to_all "${@:3}" --trace "$work/step.trace" >/dev/null
  "$rehearse" render "$work/step.trace" --svg "docs/pictures/$1.svg" --title "$2" \
    --range 60ms:100ms --ranks 0 --width 1000
}
draw experts-inside "expert_parallel 8, experts whole: groups of 8 ranks, inside a node"
draw experts-across "expert_parallel 8, experts cut in two: groups of 16 ranks, over two nodes" \
  --set plan.expert_tensor_parallel=2
"$rehearse" simulate scenarios/qwen3-235b-256.json --sweep plan.expert_parallel=4,8,16,32 \
  --svg docs/pictures/experts-sweep.svg >/dev/null

# A small Mixtral, really trained on 4 ranks: how its tokens fall on its experts.
cat >"$work/small.json" <<JSON
{
  "name": "A small Mixtral on 4 ranks: the first 120 steps", "cluster": "clusters/dgx-a100-80gb.json", "gpus": 4,
  "model": {"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 256,
            "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
            "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null,
            "max_position_embeddings": 64},
  "plan": {"sequence_length": 64, "precision": "fp32", "data_parallel": 4, "expert_parallel": 4,
           "micro_batch": 2, "global_batch": 16, "expert_capacity": 4},
  "train": {"learning_rate": 0.0006, "steps": 120, "data": "$PWD/README.md"}
}
JSON
"$rehearse" run "$work/small.json" --device cpu --trace "$work/run.trace" >/dev/null
"$rehearse" render "$work/run.trace" --experts --svg docs/pictures/experts-seen.svg --width 1000
