#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shortest ways to an answer: names that are found, standard input, plan, list, groups, sweeps,
# calibrate --from, completions and the manual page.
# Usage: shortest_way_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$1
. tests/command.sh
tiny '"pipeline_parallel": 2, "schedule": "1f1b", "micro_batch": 1, "global_batch": 4' '"steps": 3'

# Short names: said what they are taken for; several: said which.
says 'cluster: "h100" is taken as dgx-h100' simulate 3d-8-gpus --cluster h100
says 'on 8 x H100-SXM5-80GB (NVIDIA DGX H100)' simulate 3d-8-gpus --cluster H100
says 'model: "Llama2_7B" is taken as llama2-7b' simulate 3d-8-gpus --set model=Llama2_7B
refused 2 'it may mean' simulate 3d-8-gpus --cluster a100
refused 2 'rehearse list clusters has all' simulate 3d-8-gpus --cluster x
refused 2 'the nearest shipped one is llama2-7b' simulate 3d-8-gpus --set model=lama2-7b

# Standard input is read once, by whatever reads it how often.
"$rehearse" simulate - <"$scenario" >"$work/out" || fail "standard input"
"$rehearse" simulate - --sweep plan.micro_batch=1,2 <"$scenario" >"$work/out" || fail "a sweep of it"
echo '{"plan": 3}' | "$rehearse" simulate - >"$work/out" 2>&1
[ $? = 2 ] && grep -q "^rehearse: standard input:1: " "$work/out" || fail "$(cat "$work/out")"
: | "$rehearse" simulate - >"$work/out" 2>&1
[ $? = 2 ] && grep -q "standard input: the file is empty" "$work/out" || fail "$(cat "$work/out")"

# A trace, a folder and a config are told from a scenario.
"$rehearse" simulate "$scenario" --trace "$work/t.trace" >/dev/null || fail "trace"
refused 2 "is a model, not a scenario: rehearse plan" simulate scenarios/models/gpt2-124m.json
refused 2 "is a scenario, not a model" plan scenarios/3d-8-gpus.json --gpus 8 --on h100
refused 2 "is a cluster, not a model" plan scenarios/clusters/dgx-h100.json --gpus 8 --on h100
refused 2 "no profile, and no trace" render scenarios/3d-8-gpus.json --text
refused 2 "no such option; the nearest is --cluster" simulate 3d-8-gpus --clustr h100
refused 2 "neither a framework nor a runtime, the nearest" plan gpt2-124m --gpus 8 --on h100 --for megatro
refused 2 "is a trace, not a scenario: rehearse view" simulate "$work/t.trace"

# list: every kind, both forms; what it lists is found by its id.
for kind in models clusters scenarios schedules runtimes; do
  "$rehearse" list $kind >"$work/list" || fail "list $kind"
  [ "$(wc -l <"$work/list")" -ge 10 ] || fail "list $kind: $(cat "$work/list")"
  "$rehearse" list $kind --json >"$work/list.json" || fail "list $kind --json"
  [ "$(grep -c '"id":' "$work/list.json")" = "$(wc -l <"$work/list")" ] || fail "list $kind: json"
done
"$rehearse" list clusters | cut -d' ' -f1 >"$work/ids"
while read -r id; do
  "$rehearse" groups 3d-8-gpus --cluster "$id" >/dev/null 2>"$work/err" || fail "$id: $(cat "$work/err")"
done <"$work/ids"
refused 2 "KIND" list pictures

# groups: tp inside a node, dp beside it, pp over nodes; all ranks of each kind, once.
says 'tp             2 ranks       4 groups  inside a node    the first: 0 1' groups 3d-8-gpus
says 'pp             2 ranks  inside a node    3 7' groups 3d-8-gpus --rank 3
says 'dp            16 ranks      64 groups  over   16 nodes' groups gpt3-175b-1024
# Only the groups that the plan has: no experts in a dense one, no dp where its two halves are.
kinds() {
  want=$1
  shift
  got=$("$rehearse" groups "$@" | sed 1d | cut -d' ' -f1 | tr '\n' ' ')
  [ "$got" = "$want " ] || fail "groups $*: $got"
}
kinds 'tp dp pp world' 3d-8-gpus
kinds 'dp world' fsdp-64
kinds 'shard replicate world' fsdp-64 --set plan.shard_group=8
kinds 'dp pp world ep ep_etp edp' mixtral-8x7b-64
refused 2 "the last rank of 8 is 7" groups 3d-8-gpus --rank 8

# A sweep marks what cannot be, with the reason.
"$rehearse" simulate 3d-8-gpus --sweep plan.micro_batch=1,8,3 --csv --svg "$work/s.svg" >"$work/out" ||
  fail "sweep"
[ "$(wc -l <"$work/out")" = 4 ] || fail "rows of a sweep: $(cat "$work/out")"
sed -n 3p "$work/out" | grep -q 'false,"does not fit in memory"' || fail "fits: $(cat "$work/out")"
sed -n 4p "$work/out" | grep -q 'is not a multiple of data_parallel x micro_batch' || fail "reason"
grep -q "does not fit in memory" "$work/s.svg" || fail "the picture says no reason"
# Where the plan leaves the micro-batch open a sweep says what every row took, and a report whether
# the command's changes changed it.
eight="--gpus 8 --set plan.pipeline_parallel=8"
says 'plan.micro_batch is chosen for each row: 2, 4; --set plan.micro_batch=N compares like with like' \
  simulate microbatch-sweep $eight --sweep plan.schedule=1f1b,zb_h1
says '; 4 without what the command changes, so a comparison with that is of two things' \
  simulate microbatch-sweep $eight --json
says '"schema": "rehearse.sweep/1"' simulate 3d-8-gpus --sweep plan.micro_batch=1 --json
refused 2 "must be KEY=VALUE" simulate 3d-8-gpus --sweep plan.micro_batch
refused 2 "unknown key" simulate 3d-8-gpus --sweep plan.nothing=1
refused 2 "go with --sweep" simulate 3d-8-gpus --csv
refused 2 "it writes svg, not png" simulate 3d-8-gpus --sweep plan.micro_batch=1 --svg "$work/s.png"

# plan: an answer of at most 25 lines; what it saves is a scenario; a folder, as a download has it.
# Its layers of prediction are of a variant that none of its layers has.
"$rehearse" plan nemotron-3-super --gpus 64 --on gb200-nvl72 >"$work/out" 2>"$work/err" ||
  fail "plan nemotron-3-super: $? $(cat "$work/err")"
"$rehearse" plan llama3-8b --gpus 16 --on h100 --save "$work/p.json" >"$work/out" 2>"$work/err" ||
  fail "plan: $(cat "$work/err")"
[ "$(wc -l <"$work/out")" -le 25 ] || fail "plan: longer than 25 lines"
grep -q "^fits      yes" "$work/out" || fail "$(cat "$work/out")"
"$rehearse" simulate "$work/p.json" --require-fit >"$work/saved" 2>&1 || fail "what plan saves"
! grep -q "changes nothing" "$work/saved" || fail "what plan saves: $(cat "$work/saved")"
# A list of parts that are computed again is what the answer says, and what its flags launch.
"$rehearse" plan llama3-8b --gpus 16 --on h100 --set 'plan.recompute=["attention_core","mlp"]' \
  >"$work/out" || fail "plan with parts"
grep -q "; attention_core + mlp are recomputed" "$work/out" || fail "$(cat "$work/out")"
grep -q "^flags .* --use-distributed-optimizer --recompute-granularity selective --recompute-modules core_attn mlp " "$work/out" ||
  fail "$(cat "$work/out")"
says "; no flag says plan.recompute" \
  plan llama3-8b --gpus 16 --on h100 --set 'plan.recompute=["mlp_activation"]'
# Both name one band.
low() { sed -n 's/.*"low_s": *\([0-9.]*\).*/\1/p' "$1" | head -1 | cut -c1-8; }
"$rehearse" plan llama3-8b --gpus 16 --on dgx-h100 --json >"$work/plan.json" || fail "plan --json"
"$rehearse" simulate "$work/p.json" --json >"$work/saved.json" || fail "simulate --json"
[ -n "$(low "$work/plan.json")" ] && [ "$(low "$work/plan.json")" = "$(low "$work/saved.json")" ] ||
  fail "two bands: $(low "$work/plan.json"), $(low "$work/saved.json")"
# Flags are those of the framework: Megatron-DeepSpeed has words of its own.
says "--expert-model-parallel-size" plan mixtral-8x7b --gpus 16 --on dgx-h100 --for megatron
says "--moe-expert-parallel-size" plan mixtral-8x7b --gpus 16 --on dgx-h100 --for deepspeed
says_not "--expert-model-parallel-size" plan mixtral-8x7b --gpus 16 --on dgx-h100 --for deepspeed
# A changed key belongs to the title; one GPU communicates with nobody; one of a thing is one.
says 'GPT-2 1.5B on one A100, bf16 with fp32 master weights and gradients, with plan.micro_batch=1' \
  simulate memory-bf16 --set plan.micro_batch=1
says 'host copies' simulate memory-bf16
says ' of 1 rank class simulated' simulate memory-bf16
mkdir -p "$work/model" && cp scenarios/models/gpt2-124m.json "$work/model/config.json"
says "0.1244 billion parameters" plan "$work/model" --gpus 8 --on dgx-a100-80gb --global-batch 64
mkdir -p "$work/hub/models--openai-community--gpt2/snapshots/abc" &&
  cp "$work/model/config.json" "$work/hub/models--openai-community--gpt2/snapshots/abc/"
HF_HUB_CACHE="$work/hub" "$rehearse" plan openai-community/gpt2 --gpus 1 --on rtx4090-8 \
  --global-batch 8 >"$work/out" 2>&1 || fail "hub: $(cat "$work/out")"
grep -q "^openai-community/gpt2, 0.1244 billion" "$work/out" || fail "hub: $(cat "$work/out")"
"$rehearse" plan llama3-70b --gpus 8 --on h100 >"$work/out" 2>/dev/null
[ $? = 1 ] || fail "70B on 8 GPUs fits?"
grep -q "^fits      NO" "$work/out" && grep -q "^would fit on 32 GPUs" "$work/out" ||
  fail "$(cat "$work/out")"
refused 2 "no such file" plan nothing-of-the-kind --gpus 8 --on h100
refused 2 "holds no config.json" plan "$work" --gpus 8 --on h100
refused 2 "not built yet" plan llama3-8b --gpus 8 --on h100 --adapter lora:16:all
says '"schema": "rehearse.plan/1"' plan gpt2-124m --gpus 8 --on h100 --global-batch 64 --json

# calibrate --from: seconds; what it writes predicts the step as measured.
"$rehearse" calibrate --from 30 --scenario gpt3-175b-1024 -o "$work/ours.json" >"$work/out" ||
  fail "calibrate --from"
says "step time           30.000 s" simulate gpt3-175b-1024 --cluster "$work/ours.json"
refused 2 "a step of 0 s cannot be" calibrate --from 0 --scenario gpt3-175b-1024
refused 2 "too far apart" calibrate --from 1e7 --scenario gpt3-175b-1024 -o "$work/no.json"
refused 2 "is a prediction" calibrate --from "$work/t.trace" --scenario "$scenario" -o "$work/no.json"
refused 2 "needs the one --scenario" calibrate --from 3
[ ! -e "$work/no.json" ] || fail "a refused calibration left a file"

# Flags of a framework that does not run there are not printed.
says "flags     none: Megatron-LM runs on no GPU of aws" plan gpt2-124m --gpus 2 --on aws-trn2-48xlarge
refused 1 "megatron: Megatron-LM runs on no GPU of aws" emit 3d-8-gpus --for megatron --cluster aws-trn2-48xlarge

# Completions are scripts of their shells; the page formats.
"$rehearse" completion bash >"$work/c.bash" && bash -n "$work/c.bash" || fail "bash"
bash -c ". '$work/c.bash'; COMP_WORDS=(rehearse sim); COMP_CWORD=1; _rehearse; echo \${COMPREPLY[*]}" |
  grep -qx simulate || fail "bash completes no command"
bash -c ". '$work/c.bash'; COMP_WORDS=(rehearse list sch); COMP_CWORD=2; _rehearse; echo \${COMPREPLY[*]}" |
  grep -qw schedules || fail "bash completes no word"
"$rehearse" completion zsh | grep -q '^#compdef rehearse' || fail "zsh"
"$rehearse" completion fish | grep -q -- "-l cluster" || fail "fish"
"$rehearse" man >"$work/rehearse.1" && grep -q '^\.SS rehearse simulate' "$work/rehearse.1" || fail "man"
exit $status
