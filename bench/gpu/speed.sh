# SPDX-License-Identifier: Apache-2.0
# Of bench/gpu.sh: tokens per second, beside PyTorch in the same call. One function per group of bench/gpu/parts.txt.
# shellcheck shell=bash disable=SC2154,SC2034
# scenario NAME MODEL MICRO_BATCH SEQUENCE STEPS [MORE_OF_THE_PLAN]; a vocabulary of 50,304 words as in torch_gpt2_gpu.py and llm.c
scenario() {
  local model=$2 micro=$3 sequence=$4 steps=$5
  [ -n "$small" ] && model=tiny-gpt micro=$((1 + $3 / 16)) sequence=$(($4 / 16)) steps=4
  cat >"$out/$1.json" <<JSON
{"name": "$1", "model": "models/$model.json", "cluster": "clusters/dgx-h200.json", "gpus": 1,
 "plan": {"micro_batch": $micro, "global_batch": $((2 * micro)), "sequence_length": $sequence, "precision": "bf16", "dropout": 0, "pad_vocabulary_to": 128${6:+, $6}},
 "train": {"steps": $steps}}
JSON
}
scenario 124m gpt2-124m 32 1024 30
scenario 124m-16 gpt2-124m 16 1024 12
scenario 124m-8 gpt2-124m 8 1024 12
scenario 124m-short gpt2-124m 32 512 12
scenario 124m-recomputed gpt2-124m 16 1024 12 '"recompute": "full"'
scenario 124m-slices gpt2-124m 16 1024 12 '"sequence_slices": 2, "schedule": "seq_1f1b"'  # attention in parts
scenario 355m gpt2-355m 16 1024 12
scenario 1558m gpt2-1.5b 8 1024 14

measured=' '  # configurations of this call
measure() {  # measure PART CONFIGURATION
  wanted "$1" && alone
  attempt "$1" "${rehearse[@]}" run "$out/$2.json" --device "$asked" --json --trace "$out/$2.measured.trace" || return
  measured="$measured$2 "
}
torch() {  # torch CONFIGURATION MODEL MICRO_BATCH
  timeout 60 "$python" -c 'import torch' 2>"$out/torch.err" || return 0
  local what=(--model "$2" --batch "$3")
  [ -n "$small" ] && what=(--model tiny --batch 2 --device cpu --steps 3 --warmup 1 --no-compile)
  attempt "torch_$1" "$python" bench/peers/torch_gpt2_gpu.py "${what[@]}"
}

run_speed_124m() {
  measure run_124m 124m
  torch 124m gpt2-124m 32
  say "- GPT-2 124M:" speed "$out/run_124m.out" "$out/torch_124m.out" 1.15 475000
}
run_speed_1558m() { measure run_1558m 1558m; }
run_torch_1558m() {
  torch 1558m gpt2-1.5b 8
  say "- GPT-2 1558M:" speed "$out/run_1558m.out" "$out/torch_1558m.out" 1.05 46800
}
