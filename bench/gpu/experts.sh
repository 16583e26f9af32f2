# SPDX-License-Identifier: Apache-2.0
# Of bench/gpu.sh: do layers with experts compute on a GPU what they compute on the CPU, on one rank, in one process and
# over NCCL? One function per group of bench/gpu/parts.txt. Their products' rates stand in kernels.md (calibration).
# shellcheck shell=bash disable=SC2154,SC2034
expert_layouts=("pipeline_parallel=1" "data_parallel=2 expert_parallel=2" "data_parallel=2 expert_parallel=2 recompute=full"
  "data_parallel=2 expert_parallel=2 expert_dispatch=all_gather")
# 64 tokens of a rank are dealt unevenly: slots of four times the mean.
cat >"$out/tiny-mixtral.json" <<'JSON'
{"name": "tiny-mixtral", "cluster": "clusters/dgx-h200.json", "gpus": 1,
 "model": {"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256, "num_attention_heads": 4,
           "num_key_value_heads": 2, "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2,
           "sliding_window": null, "max_position_embeddings": 64},
 "plan": {"sequence_length": 64, "precision": "fp32", "dropout": 0, "micro_batch": 1, "global_batch": 4, "expert_capacity": 4},
 "train": {"learning_rate": 0.003, "steps": 10}}
JSON

run_experts() {
  local tiny=$out/tiny-mixtral.json layout name here there nccl_failed=0 rows=()
  keys_of pipeline_parallel=1
  attempt experts_cpu "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}"
  for layout in "${expert_layouts[@]}"; do
    name=experts_$(name_of "$layout") here="**failed**" there=-
    wanted "$name" || continue
    keys_of "$layout"
    attempt "$name" "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" &&
      here=$(report curves "$out/$name.out" "$out/experts_cpu.out" 1e-4)
    if wanted "nccl_$name" && [ "$device" != cpu ]; then
      over_nccl "nccl_$name" "$(ranks_of "$layout")" && there=$(report curves "$out/nccl_$name.out" "$out/experts_cpu.out" 1e-4) ||
        there="**failed**: $(tail -1 "$out/nccl_$name.err" | cut -c1-160)"
    fi
    rows+=("| $layout | $here | $there |")
  done
  note ""
  note "| tiny Mixtral, fp32, 10 steps, against one rank on the CPU | ranks of one process | NCCL, a process per rank |"
  note "|---|---|---|"
  for layout in "${rows[@]}"; do note "$layout"; done
  note ""
  keys_of pipeline_parallel=1
  attempt experts_bf16 "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --set "plan.precision=$half" &&
    say "- experts in $half against fp32:" curves "$out/experts_bf16.out" "$out/experts_cpu.out" 2e-2
}
