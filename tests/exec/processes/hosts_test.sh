#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Two hosts: two network namespaces that see one another over one link and nothing else.
# Usage: hosts_test.sh REHEARSE.
cd "$(dirname "$0")/../../.." || exit 2
rehearse=$1
. tests/exec/processes/processes.sh
case $("$rehearse" --version) in *gloo*) ;; *) echo "SKIPPED: this build has no Gloo"; exit 0 ;; esac
command -v ip >/dev/null || { echo "SKIPPED: no ip command (iproute2)"; exit 0; }
a=rehearse-a-$$ b=rehearse-b-$$
ip netns add $a 2>"$work/err" || { echo "SKIPPED: no network namespaces here: $(cat "$work/err")"; exit 0; }
trap 'kill $(jobs -p) 2>/dev/null; ip netns del $a; ip netns del $b; rm -rf "$work"' EXIT
ip netns add $b && ip link add veth-a-$$ netns $a type veth peer name veth-b-$$ netns $b 2>"$work/err" ||
  { echo "SKIPPED: no links between network namespaces here: $(cat "$work/err")"; exit 0; }
for host in "$a veth-a-$$ 10.77.0.1" "$b veth-b-$$ 10.77.0.2"; do
  set -- $host
  ip -n "$1" addr add "$3/24" dev "$2" && ip -n "$1" link set "$2" up && ip -n "$1" link set lo up
done

scenario "$work/s.json" 4
(umask 077; head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$work/secret")
on() {  # on HOST RANK ARGS..., one of $world processes
  host=$1 rank=$2; shift 2
  [ -n "$no_secret" ] || export REHEARSE_SECRET_FILE=$work/secret
  RANK=$rank WORLD_SIZE=${world:-2} LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 \
    exec ip netns exec "$host" "$rehearse" run "$work/s.json" --set plan.pipeline_parallel=2 \
    --set plan.tensor_parallel=2 "$@"
}
"$rehearse" run "$work/s.json" --set plan.pipeline_parallel=2 --set plan.tensor_parallel=2 --json >"$work/one.json"
(on $b 1 --json) >"$work/out" 2>"$work/err.1" & (on $a 0 --json) >"$work/many.json" 2>"$work/err" ||
  fail "process 0: $(cat "$work/err")"
wait $! || fail "process 1: $(cat "$work/err.1")"
[ -n "$(losses "$work/one.json")" ] && [ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] ||
  fail "other numbers on two hosts"

# Without a secret nobody listens; with another one nobody joins, and who waits goes on waiting.
(no_secret=1; on $a 0) >"$work/out" 2>"$work/err"; [ $? -eq 2 ] || fail "no secret: exit code"
one_line "$work/err" "REHEARSE_SECRET_FILE: is not set.*openssl rand" "no secret"
(on $a 0 --json) >"$work/many.json" 2>"$work/err" & first=$!
(no_secret=1; export REHEARSE_SECRET=of-some-other-run; on $b 1) >"$work/out" 2>"$work/err.1"
[ $? -eq 3 ] || fail "another secret: exit code"
one_line "$work/err.1" "10.77.0.1:29500: who listens there has another secret" "another secret"
(on $b 1 --json) >"$work/out" 2>"$work/err.1" || fail "after another secret, process 1: $(cat "$work/err.1")"
wait $first || fail "after another secret, process 0: $(cat "$work/err")"
[ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] || fail "other numbers after another secret"

# Two processes on each: neighbors read each other's memory, the hosts talk over the link.
pids=()
for k in 1 2 3; do
  (world=4 on $([ $k -lt 2 ] && echo $a || echo $b) $k --json) >"$work/out" 2>"$work/err.$k" & pids+=($!)
done
(world=4 on $a 0 --json) >"$work/many.json" 2>"$work/err" || fail "process 0 of 4: $(cat "$work/err")"
for k in 0 1 2; do wait "${pids[$k]}" || fail "process $((k + 1)) of 4: $(cat "$work/err.$((k + 1))")"; done
[ "$(losses "$work/one.json")" = "$(losses "$work/many.json")" ] || fail "other numbers in four processes on two hosts"

# The link goes down: both ends notice within the timeout.
(on $b 1 --steps 1000000 --timeout 10) >"$work/out" 2>"$work/err.1" & other=$!
(on $a 0 --steps 1000000 --timeout 10 --metrics "$work/met.jsonl") >"$work/out" 2>"$work/err" & first=$!
appears "$work/met.jsonl.partial" || fail "two hosts: no first step"
ip -n $b link set veth-b-$$ down
wait $first; [ $? -eq 3 ] || fail "process 0 goes on without its partner"
wait $other; [ $? -eq 3 ] || fail "process 1 goes on without its partner"
one_line "$work/err" "rank [0-9]" "the link is down"
exit $status
