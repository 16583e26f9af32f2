# SPDX-License-Identifier: Apache-2.0
# Of bench/gpu.sh: calibration, the kernels' table, steps predicted from it, memory. One function per group of
# bench/gpu/parts.txt. Steps are those of the call that calibrated: another may have had another GPU.
# shellcheck shell=bash disable=SC2154
configurations=(124m 124m-8 355m 124m-16 124m-short 124m-recomputed 124m-slices 1558m)

run_calibration() {
  local shapes=() c
  for c in "${configurations[@]}"; do shapes+=(--scenario "$out/$c.json"); done
  rm -f "$out/machine.json"
  wanted calibrate && alone
  REHEARSE_CUDA_ATTENTION=${REHEARSE_CUDA_ATTENTION:-say} attempt calibrate "${rehearse[@]}" calibrate --device "$asked" --quick "${shapes[@]}" -o "$out/machine.json" || return
  head -3 "$out/calibrate.out" | sed 's/^/- /' | tee -a "$piece"
  report kernels "$out/machine.json" >"$out/kernels.md"
  note "- every kernel against the measured ceilings: kernels.md"
  local chosen
  chosen=$(grep -h '^rehearse: attention ' "$out/calibrate.err" | sed 's/^rehearse: /- /')
  [ -n "$chosen" ] || return 0  # one engine alone
  printf '\n%s\n' "$chosen" >>"$out/kernels.md"
  local trials
  trials=$(grep -cE ': (mma.sync|wgmma|cudnn): ' <<<"$chosen")
  note "- attention by wgmma in $(grep -c ': wgmma: ' <<<"$chosen") and by cuDNN in $(grep -c ': cudnn: ' <<<"$chosen") of $trials trials, all times in kernels.md$(grep -hE ' computes all| left out' <<<"$chosen" | sed 's/^-/;/')"
}

run_prediction() {
  [ -s "$out/machine.json" ] || { note "- no prediction: there is no calibration"; return; }
  local c run rows=() runs=()
  for c in "${configurations[@]}"; do
    run=run_$c
    if [[ $measured != *" $c "* ]]; then
      wanted "again_$c" && run=again_$c
      measure "$run" "$c" || continue
    fi
    attempt "dry_$c" "${rehearse[@]}" run "$out/$c.json" --device "$asked" --dry-run --json --cluster "$out/machine.cluster.json" || continue
    rows+=("$(report prediction "$c" "$out/$run.out" "$out/dry_$c.out")")
    [[ $c =~ ^(124m|1558m)$ && $device != cpu ]] && runs+=("$run")
  done
  note ""
  note "| configuration, one GPU | predicted ms | measured ms | error | arena planned by the prediction / the run | planned = used |"
  note "|---|---|---|---|---|---|"
  for c in "${rows[@]}"; do note "$c"; done
  note ""
  for run in "${runs[@]}"; do say "- memory of ${run#*_} by cudaMemGetInfo:" memory "$out/$run.out" "$out/machine.json"; done
}

# Eight heads of queries share one of keys, as on a rank of eight of Llama-3 70B: tiles of keys are few.
cat >"$out/keys.json" <<JSON
{"name": "keys", "cluster": "clusters/dgx-h200.json", "gpus": 1,
 "model": {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 1, "vocab_size": 1024, "num_attention_heads": 8,
           "num_key_value_heads": 1, "intermediate_size": 1024, "max_position_embeddings": 8192},
 "plan": {"micro_batch": 1, "global_batch": 1, "sequence_length": $([ -n "$small" ] && echo 64 || echo 8192), "precision": "$half", "dropout": 0},
 "train": {"steps": 2}}
JSON
run_few_keys() {
  local chosen
  REHEARSE_CUDA_ATTENTION=${REHEARSE_CUDA_ATTENTION:-say} attempt keys "${rehearse[@]}" run "$out/keys.json" --device "$asked" || return
  chosen=$(grep -h '^rehearse: attention backward' "$out/keys.err" | sed 's/^rehearse: /- one head of keys: /')
  [ -z "$chosen" ] || note "$chosen"
}
