# SPDX-License-Identifier: Apache-2.0
# Of bench/gpu.sh: do layers with experts and latent attention compute on a GPU what they compute on the CPU, on one rank,
# in one process and over NCCL? And what overlap is worth. One function per group of bench/gpu/parts.txt. Rates of their
# products and of attention stand in kernels.md (calibration).
# shellcheck shell=bash disable=SC2154,SC2034
expert_layouts=("pipeline_parallel=1" "data_parallel=2 expert_parallel=2" "data_parallel=2 expert_parallel=2 recompute=full"
  "data_parallel=2 expert_parallel=2 expert_dispatch=all_gather" "data_parallel=2 expert_parallel=2 expert_dispatch=deduplicated"
  "tensor_parallel=2 sequence_parallel=true")
# 64 tokens of a rank are dealt unevenly: slots of four times the mean.
cat >"$out/tiny-mixtral.json" <<'JSON'
{"name": "tiny-mixtral", "cluster": "clusters/dgx-h200.json", "gpus": 1,
 "model": {"model_type": "mixtral", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256, "num_attention_heads": 4,
           "num_key_value_heads": 2, "intermediate_size": 96, "num_local_experts": 8, "num_experts_per_tok": 2,
           "sliding_window": null, "max_position_embeddings": 64},
 "plan": {"sequence_length": 64, "precision": "fp32", "dropout": 0, "micro_batch": 1, "global_batch": 4, "expert_capacity": 4},
 "train": {"learning_rate": 0.003, "steps": 10}}
JSON

latent_layouts=("pipeline_parallel=1" "tensor_parallel=2" "context_parallel=2")
# DeepSeek-V2's heads (keys of 128 + 64 columns, values of 128) in dense layers: choices of a router that first weights
# leave close together would fall otherwise by rounding.
cat >"$out/tiny-deepseek.json" <<'JSON'
{"name": "tiny-deepseek", "cluster": "clusters/dgx-h200.json", "gpus": 1,
 "model": {"model_type": "deepseek_v2", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 256, "num_attention_heads": 2,
           "q_lora_rank": 48, "kv_lora_rank": 32, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
           "intermediate_size": 96, "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 2,
           "max_position_embeddings": 64},
 "plan": {"sequence_length": 64, "precision": "fp32", "dropout": 0, "micro_batch": 1, "global_batch": 4},
 "train": {"learning_rate": 0.003, "steps": 10}}
JSON

# in_layouts GROUP MODEL SCENARIO LAYOUTS...: losses and norms of each against one rank on the CPU, and bf16's.
in_layouts() {
  local group=$1 model=$2 tiny=$3 layout name here there nccl_failed=0 rows=()
  shift 3
  keys_of pipeline_parallel=1
  attempt "${group}_cpu" "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}"
  for layout in "$@"; do
    name=${group}_$(name_of "$layout") here="**failed**" there=-
    wanted "$name" || continue
    keys_of "$layout"
    attempt "$name" "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" &&
      here=$(report curves "$out/$name.out" "$out/${group}_cpu.out" 1e-4)
    if wanted "nccl_$name" && [ "$device" != cpu ]; then
      over_nccl "nccl_$name" "$(ranks_of "$layout")" && there=$(report curves "$out/nccl_$name.out" "$out/${group}_cpu.out" 1e-4) ||
        { nccl_failed=$((nccl_failed + 1)); there="**failed**: $(why_not "nccl_$name" | paste -sd ' ')"; }
    fi
    rows+=("| $layout | $here | $there |")
  done
  note ""
  note "| $model, fp32, 10 steps, against one rank on the CPU | ranks of one process | NCCL, a process per rank |"
  note "|---|---|---|"
  for layout in "${rows[@]}"; do note "$layout"; done
  note ""
  keys_of pipeline_parallel=1
  attempt "${group}_bf16" "${rehearse[@]}" run "$tiny" --device "$asked" "${keys[@]}" --set "plan.precision=$half" &&
    say "- $model in $half against fp32:" curves "$out/${group}_bf16.out" "$out/${group}_cpu.out" 2e-2
}
run_experts() { in_layouts experts "tiny Mixtral" "$out/tiny-mixtral.json" "${expert_layouts[@]}"; }
run_latent() { in_layouts latent "tiny DeepSeek-V2" "$out/tiny-deepseek.json" "${latent_layouts[@]}"; }

# What overlap is worth where two ranks share the GPU: tokens are copies on the device, which take its bandwidth. Both
# ways train the same numbers. With a GPU for each rank: the same file, --processes 2.
run_overlap() {
  local hidden=1024 sequence=2048 micro=4 pairs
  [ -n "$small" ] && hidden=64 sequence=32 micro=1
  cat >"$out/overlap.json" <<JSON
{"name": "overlap", "cluster": "clusters/dgx-h200.json", "gpus": 2,
 "model": {"model_type": "qwen2_moe", "hidden_size": $hidden, "num_hidden_layers": 4, "vocab_size": 1024,
           "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": $hidden, "num_experts": 8,
           "num_experts_per_tok": 2, "moe_intermediate_size": $((hidden / 2)), "shared_expert_intermediate_size": $((2 * hidden)),
           "decoder_sparse_step": 1, "norm_topk_prob": false, "tie_word_embeddings": false,
           "max_position_embeddings": $sequence},
 "plan": {"sequence_length": $sequence, "precision": "$half", "dropout": 0, "micro_batch": $micro, "global_batch": $((8 * micro)),
          "data_parallel": 2, "expert_parallel": 2, "expert_capacity": $((micro > 1 ? 2 : 4))},
 "train": {"learning_rate": 0.0001, "steps": 8}}
JSON
  pairs=(--set gpus=4 --set plan.pipeline_parallel=2 --set plan.virtual_stages=2 --set plan.schedule=interleaved_1f1b
    --set plan.extra_warmup=1)
  local run=("${rehearse[@]}" run "$out/overlap.json" --device "$asked" --json)
  attempt overlap_apart "${run[@]}" && attempt overlap_shared "${run[@]}" --set 'plan.overlap.expert_parallel="shared"' &&
    say "- a shared expert beside its dispatch:" overlap "$out/overlap_apart.out" "$out/overlap_shared.out"
  attempt overlap_pairs_apart "${run[@]}" "${pairs[@]}" &&
    attempt overlap_pairs "${run[@]}" "${pairs[@]}" --set 'plan.overlap.expert_parallel="pair"' &&
    say "- pairs of a forward and a backward:" overlap "$out/overlap_pairs_apart.out" "$out/overlap_pairs.out"
}

# Products in pieces beside their collectives over tp: what that is worth between two GPUs, where there are two. Ranks that
# share one have collectives that are copies on it; over NCCL they take turns, and only the numbers mean something.
run_pieces() {
  local hidden=4096 heads=32 sequence=2048 micro=4 between=() near=(1e-2) where nccl_failed=0
  local gpus=${GPUS:-$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')}
  [ -n "$small" ] && hidden=64 heads=4 sequence=32 micro=1 near=()  # the doubles' products are alike whole and in pieces
  cat >"$out/pieces.json" <<JSON
{"name": "pieces", "cluster": "clusters/dgx-h200.json", "gpus": 2,
 "model": {"model_type": "gpt2", "n_embd": $hidden, "n_layer": 4, "n_head": $heads, "n_positions": $sequence,
           "vocab_size": 1024, "resid_pdrop": 0},
 "plan": {"sequence_length": $sequence, "precision": "$half", "dropout": 0, "micro_batch": $micro, "global_batch": $((4 * micro)),
          "tensor_parallel": 2, "sequence_parallel": true},
 "train": {"learning_rate": 0.0001, "steps": 8}}
JSON
  where="ranks of one process"
  [ "$gpus" -ge 2 ] && between=(--processes 2) where="two GPUs over NCCL"
  local run=("${rehearse[@]}" run "$out/pieces.json" --device "$asked" --json "${between[@]}") cut=(--set plan.overlap.tensor_parallel=true)
  attempt pieces_whole "${run[@]}" && attempt pieces_cut "${run[@]}" "${cut[@]}" &&
    say "- products in pieces beside their collectives, $where:" overlap "$out/pieces_whole.out" "$out/pieces_cut.out" "${near[@]}"
  keys_of "tensor_parallel=2 sequence_parallel=true overlap.tensor_parallel=true global_batch=2"
  attempt pieces_cpu "${rehearse[@]}" run "$tiny" --device cpu "${keys[@]}" --steps 10 || return
  wanted nccl_pieces && [ "$device" != cpu ] || return
  if over_nccl nccl_pieces 2; then
    say "- products in pieces over NCCL, a process per rank, against the CPU:" curves "$out/nccl_pieces.out" "$out/pieces_cpu.out" 1e-4
  else
    note "- **nccl_pieces failed**: $(why_not nccl_pieces | paste -sd ' ')"
  fi
}
