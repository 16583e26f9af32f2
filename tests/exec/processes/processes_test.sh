#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs of several processes: the numbers of one process in 21 layouts, and errors that name who is to
# blame. Usage: processes_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/exec/processes/processes.sh
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 0 ;; esac

# layout PROCESSES GPUS PLAN_KEYS...: the same losses and norms, bit for bit, as in one process; by
# each other's memory, where that is allowed, and by TCP alone.
layout() {
  processes=$1 gpus=$2; shift 2
  set -- "${@/#/--set=plan.}"
  scenario "$work/s.json" "$gpus"
  "$rehearse" run "$work/s.json" "$@" --json >"$work/one.json" || fail "one process: $*"
  [ "$(losses "$work/one.json" | wc -l)" -eq 10 ] || fail "$*: 3 losses and 3 norms expected"
  for neighbors in 0 1; do
    what="$processes processes, REHEARSE_NEIGHBORS=$neighbors: $*"
    REHEARSE_NEIGHBORS=$neighbors "$rehearse" run "$work/s.json" "$@" --json --processes "$processes" \
      --trace "$work/t.trace" >"$work/many.json" 2>"$work/err" || fail "$what: $(cat "$work/err")"
    [ -s "$work/err" ] && fail "$what: a pipe sees $(cat "$work/err")"
    [ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] || fail "$what: other numbers"
    grep -q "\"processes\": $processes" "$work/many.json" || fail "$what: processes"
  done
  "$rehearse" export "$work/t.trace" --to csv "$work/t.csv" || fail "$*: trace"
}

layout 2 2 pipeline_parallel=2 schedule=1f1b
layout 2 4 pipeline_parallel=4 schedule=zb_h1
layout 4 4 pipeline_parallel=2 virtual_stages=2 schedule=interleaved_1f1b data_parallel=2 zero_stage=1
layout 2 4 pipeline_parallel=2 schedule=zb_v tensor_parallel=2 sequence_parallel=true
layout 2 2 tensor_parallel=2
layout 4 4 tensor_parallel=4 sequence_parallel=true recompute=full
layout 2 4 'tensor_parallel_2d=[2,2]' micro_batch=2
layout 4 4 'tensor_parallel_2d=[2,2]' micro_batch=2 precision=bf16
layout 2 2 data_parallel=2 'overlap={"gradient_reduce":true}' bucket_bytes=65536
layout 2 4 data_parallel=4 zero_stage=2
layout 4 4 data_parallel=4 zero_stage=3
layout 4 4 data_parallel=4 data_parallel_algorithm=parameter_server
layout 4 4 pipeline_parallel=4 schedule=chimera
layout 2 4 context_parallel=2 tensor_parallel=2
layout 4 4 context_parallel=2 pipeline_parallel=2 schedule=seq_1f1b sequence_slices=4
layout 2 4 context_parallel=2 pipeline_parallel=2 schedule=seq_zb_h1 sequence_slices=2 recompute=full
layout 2 2 pipeline_parallel=2 schedule=seq_zb_h1 sequence_slices=2
layout 4 8 pipeline_parallel=2 tensor_parallel=2 data_parallel=2 sequence_parallel=true schedule=1f1b zero_stage=3
layout 4 4 pipeline_parallel=2 tensor_parallel=2 sequence_parallel=true schedule=1f1b precision=bf16
layout 2 4 tensor_parallel=2 data_parallel=2 zero_stage=2 precision=bf16
layout 4 4 pipeline_parallel=2 data_parallel=2 zero_stage=1 schedule=1f1b precision=fp16

# Collectives of a file's own groups: who holds what, and the losses, whatever carries them.
for processes in 1 2 4; do
  "$rehearse" run scenarios/collectives-4.json --steps 1 --processes "$processes" --json >"$work/held.$processes.json" ||
    fail "collectives-4 in $processes processes"
  sed -n '/"exchanges"/,/^  \]/p;/"losses"/,/\]/p' "$work/held.$processes.json" >"$work/held.$processes"
  [ "$(grep -c '"before"' "$work/held.$processes")" -eq 36 ] || fail "collectives-4: exchanges are missing"
  cmp -s "$work/held.1" "$work/held.$processes" || fail "collectives-4: $processes processes hold something else"
done

# Checkpoints: written by four processes, read by two, bit for bit as if never interrupted.
scenario "$work/s.json" 4
plan="--set plan.pipeline_parallel=2 --set plan.data_parallel=2 --set plan.zero_stage=1"
"$rehearse" run "$work/s.json" $plan --steps 6 --json | grep -A7 '"losses"' | sed -n '5,7p' >"$work/expected"
"$rehearse" run "$work/s.json" $plan --steps 3 --processes 4 --checkpoint "$work/checkpoints" >"$work/out" 2>&1 ||
  fail "a checkpoint of four processes: $(cat "$work/out")"
"$rehearse" run "$work/s.json" $plan --steps 6 --processes 2 --resume "$work/checkpoints" --json |
  grep -A4 '"losses"' | sed -n '2,4p' >"$work/got"
[ "$(wc -l <"$work/got")" -eq 3 ] && cmp -s "$work/expected" "$work/got" ||
  fail "resumed by two processes: $(cat "$work/got") instead of $(cat "$work/expected")"

# --- errors ---
scenario "$work/s.json" 4
run() { "$rehearse" run "$work/s.json" --set plan.pipeline_parallel=4 "$@"; }
start() { exec "$rehearse" run "$work/s.json" --set plan.pipeline_parallel=4 "$@"; }  # in the background

run --processes 3 2>"$work/err"; [ $? -eq 2 ] || fail "3 processes for 4 ranks"
one_line "$work/err" "3 processes do not divide the 4 ranks" "3 processes"

run --processes 2 --set train.learning_rate=1000 --set train.clip_norm=0 --steps 200 >"$work/out" 2>"$work/err"
[ $? -eq 1 ] || fail "a run that diverges: exit code"
one_line "$work/err" "training diverged at step" "NaN"

run --processes 2 --set model.vocab_size=50 --data README.md >"$work/out" 2>"$work/err"
[ $? -eq 2 ] || fail "data beyond the vocabulary: exit code"
one_line "$work/err" "not in the vocabulary" "data"

# Ctrl-C, as a terminal or a script sends it: all stop after the same step.
for to in launcher group; do
  rm -f "$work/stopped.trace" "$work"/stopped.jsonl*
  set -m; start --processes 2 --steps 1000000 --metrics "$work/stopped.jsonl" --trace "$work/stopped.trace" >"$work/out" 2>"$work/err" & launcher=$!; set +m
  children $launcher 2 || fail "the children do not come"
  pids=$(pgrep -P $launcher)
  appears "$work/stopped.jsonl.partial" || fail "SIGINT to the $to: no first step"
  if [ $to = group ]; then kill -INT -- -$launcher; else kill -INT $launcher; fi
  wait $launcher; code=$?
  [ $code -eq 130 ] || fail "SIGINT to the $to: exit $code"
  one_line "$work/err" "stopped after step" "SIGINT to the $to"
  [ -s "$work/stopped.trace" ] || fail "SIGINT to the $to: no timeline of what was done"
  gone $pids
done

# The store listens where no other host can connect; the secret is in no command line.
start --processes 2 --steps 1000000 >"$work/out" 2>"$work/err" & launcher=$!
children $launcher 2 || fail "the children do not come"
pids=$(pgrep -P $launcher)
[ "$(listens $launcher)" = 0100007F ] || fail "--processes listens at $(listens $launcher)"
secret=$(tr '\0' '\n' <"/proc/${pids%%[^0-9]*}/environ" | sed -n 's/^REHEARSE_SECRET=//p')
[ ${#secret} -eq 64 ] || fail "the launcher gives its children no secret"
cat /proc/$launcher/cmdline $(printf '/proc/%s/cmdline ' $pids) | grep -qa "$secret" && fail "the secret is in a command line"
kill -9 $launcher; wait $launcher 2>/dev/null
gone $pids

# The launcher dies: nobody is left behind.
start --processes 2 --steps 1000000 >"$work/out" 2>"$work/err" & launcher=$!
children $launcher 2 || fail "the children do not come"
pids=$(pgrep -P $launcher)
kill -9 $launcher; wait $launcher 2>/dev/null
gone $pids

# --- started by others: torchrun's variables ---
port=$((20000 + $$ % 12000))  # below those that the system lends
member() {  # member K WORLD ARGS...: process K of WORLD; its errors in err.K
  k=$1 world=$2; shift 2
  RANK=$k WORLD_SIZE=$world LOCAL_RANK=$k MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$rehearse" run "$work/s.json" --set plan.pipeline_parallel=4 "$@" >"$work/out.$k" 2>"$work/err.$k"
}
run --json >"$work/one.json"
touch "$work/rehearse-lost-1" && touch -d "2 hours ago" "$work/rehearse-lost-2"  # of runs whose host died
member 1 2 --json & member 0 2 --json || fail "two processes by torchrun's variables: $(cat "$work/err.0")"
wait $! || fail "process 1: $(cat "$work/err.1")"
[ "$(losses "$work/one.json")" = "$(losses "$work/out.0")" ] || fail "torchrun's variables: other numbers"
[ -s "$work/out.1" ] && fail "process 1 prints"
[ -e "$work/rehearse-lost-1" ] && [ ! -e "$work/rehearse-lost-2" ] || fail "only old files of lost runs are removed"

port=$((port + 1))
member 1 2 --set plan.schedule=gpipe & member 0 2 && fail "another schedule is not noticed"
wait $! && fail "another schedule is not refused"
cat "$work/err.0" "$work/err.1" >"$work/err"
one_line "$work/err" "rank 2 has another schedule \(hash [0-9a-f]{16} instead of [0-9a-f]{16}\)" "another schedule"

port=$((port + 1))
(export REHEARSE_SECRET=of-another-run-than-this; member 1 2) & other=$!
(export REHEARSE_SECRET=of-this-run-and-no-other; member 0 2 --steps 3 --flight "$work") & first=$!
wait $other; [ $? -eq 3 ] || fail "another secret: exit code"
one_line "$work/err.1" "127.0.0.1:$port: who listens there has another secret" "another secret"
kill -0 $first 2>/dev/null || fail "another secret ends the run"
[ "$(listens $(pgrep -P $first))" = 0100007F ] || fail "torchrun's variables: listens at $(listens $(pgrep -P $first))"
(export REHEARSE_SECRET=of-this-run-and-no-other; member 1 2 --steps 3) & other=$!
wait $first || fail "the right secret after another one: $(cat "$work/err.0")"
wait $other || fail "the right secret after another one: $(cat "$work/err.1")"

echo 0123456789abcdef >"$work/secret"; chmod 644 "$work/secret"
REHEARSE_SECRET_FILE=$work/secret RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 run 2>"$work/err"
[ $? -eq 2 ] || fail "a secret that others can read: exit code"
one_line "$work/err" "REHEARSE_SECRET_FILE: .*others may read it" "a secret that others can read"
REHEARSE_SECRET_FILE=$work/secret run --processes 2 2>"$work/err"
[ $? -eq 2 ] || fail "--processes with a secret that others can read: exit code"
one_line "$work/err" "others may read it" "--processes with a secret that others can read"
RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 run 2>"$work/err"
[ $? -eq 2 ] || fail "hosts without a secret: exit code"
one_line "$work/err" "REHEARSE_SECRET_FILE: is not set.*openssl rand -hex 32" "hosts without a secret"
# All are told to be on this host: nothing else is asked for, whatever the host is called.
port=$((port + 1))
for k in 1 0; do
  RANK=$k WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=no-such-host.invalid MASTER_PORT=$port run --json \
    >"$work/out.$k" 2>"$work/err.$k" & pids[$k]=$!
done
for k in 1 0; do wait ${pids[$k]} || fail "a host without a name: $(cat "$work/err.$k")"; done
[ "$(losses "$work/one.json")" = "$(losses "$work/out.0")" ] || fail "a host without a name: other numbers"

port=$((port + 1))
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port start >"$work/out.0" 2>&1 & holder=$!
for _ in $(seq 6000); do [ -n "$(listens $holder)" ] && break; sleep 0.1; done  # for a process 1 that never comes
RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port run >"$work/out" 2>"$work/err"
[ $? -eq 3 ] || fail "a busy port: exit code"
one_line "$work/err" "MASTER_PORT: port $port: Address already in use" "a busy port"
kill -9 $holder; wait $holder 2>/dev/null

RANK=2 WORLD_SIZE=2 MASTER_ADDR=x "$rehearse" run "$work/s.json" 2>"$work/err"
[ $? -eq 2 ] || fail "RANK beyond WORLD_SIZE"
one_line "$work/err" 'RANK: "2" is no number from 0 to 1' "RANK"

# --- faults: a few here, many by tests/exec/processes/faults.sh 20 ---
bash tests/exec/processes/faults.sh "$rehearse" 4 || status=1
exit $status
