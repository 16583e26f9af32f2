#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The real launchers on one host: four processes give one process's numbers; of one that is killed every launcher's job
# ends, nobody is left, and somebody says which rank it was.
# Usage: launchers_test.sh REHEARSE mpirun|torchrun|srun. SKIPPED where that launcher is not installed.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1 launcher=$2
skip() { echo "SKIPPED: $*"; exit 77; }
command -v "$launcher" >/dev/null || skip "there is no $launcher"
case $("$rehearse" --version) in *gloo*) ;; *) skip "this build has no Gloo" ;; esac
. tests/exec/processes/processes.sh
export MASTER_PORT=$((20000 + $$ % 12000))

# launch ARGS...: four processes of the command.
case $launcher in
  mpirun)
    rank_variable=OMPI_COMM_WORLD_RANK
    launch() { mpirun ${root:+--allow-run-as-root} --oversubscribe --bind-to none -x MASTER_PORT -n 4 "$rehearse" "$@"; }
    [ "$(id -u)" = 0 ] && root=1 ;;
  torchrun)
    rank_variable=RANK
    launch() { torchrun --no_python --nnodes 1 --nproc_per_node 4 --master_addr 127.0.0.1 --master_port "$MASTER_PORT" "$rehearse" "$@"; } ;;
  srun)
    rank_variable=SLURM_PROCID
    . tests/exec/processes/slurm.sh
    trap 'slurm_down; kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT
    slurm_up || skip "Slurm does not come up here: $(tail -1 "$work/slurm/why")"
    launch() { srun -n 4 --overcommit "$rehearse" "$@"; } ;;
esac

# process K: its pid. Launchers start them from daemons of their own.
process() {
  for pid in $(pgrep -x rehearse); do
    environment=$(tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ")
    grep -qx "TMPDIR=$work" <<<"$environment" && grep -qx "$rank_variable=$1" <<<"$environment" && echo "$pid"
  done
}

scenario "$work/s.json" 4
four=(run "$work/s.json" --set plan.pipeline_parallel=4)
"$rehearse" "${four[@]}" --json >"$work/one.json" || fail "one process"
launch "${four[@]}" --json >"$work/many.json" 2>"$work/err" || fail "$launcher: exit $?: $(cat "$work/err")"
[ -n "$(losses "$work/one.json")" ] && [ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] ||
  fail "$launcher: other numbers: $(head -c 300 "$work/many.json")"

if [ "$launcher" = srun ]; then  # the body of the sample for sbatch, as srun reads its variables
  export MASTER_PORT=$((MASTER_PORT + 2))
  PATH=$(dirname "$rehearse"):$PATH SLURM_NTASKS=4 SLURM_OVERCOMMIT=1 REHEARSE_SECRET_FILE=$work/secret \
    bash docs/launch/slurm.sh "${four[@]:1}" --json >"$work/many.json" 2>"$work/err" || fail "slurm.sh: exit $?: $(cat "$work/err")"
  [ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] || fail "slurm.sh: other numbers"
  [ "$(wc -c <"$work/secret")" -ge 64 ] || fail "slurm.sh makes no secret"
fi

export MASTER_PORT=$((MASTER_PORT + 2))
launch "${four[@]}" --steps 1000000 --metrics "$work/met.jsonl" >"$work/out" 2>"$work/err" &
job=$!
appears "$work/met.jsonl.partial" || fail "$launcher: no first step: $(cat "$work/err")"
pids=$(for k in 0 1 2 3; do process $k; done)
[ "$(wc -w <<<"$pids")" = 4 ] || fail "$launcher: four processes expected: $pids"
kill -9 "$(process 2)"
wait $job && fail "$launcher: a killed task is no error"
gone $pids
# mpirun ends the others at once: its own line may be the only one.
grep -Eq "rehearse: rank 2 (died|was killed)|mpirun noticed that process rank 2 " "$work/err" ||
  fail "$launcher: nobody says that rank 2 was killed: $(cat "$work/err")"
exit $status
