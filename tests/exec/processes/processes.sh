# SPDX-License-Identifier: Apache-2.0
# Sourced by the tests of several processes: a small scenario, and how to read what a run says.
# REQUIRES: $rehearse, in the project's root, as tests/command.sh.
. tests/command.sh
export TMPDIR=$work  # flight records
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$work"' EXIT

# scenario FILE GPUS MODEL_KEYS: as tests/exec/step/layout_case.h has it.
scenario() {
  cat >"$1" <<JSON
{
  "name": "processes", "cluster": "clusters/dgx-a100-80gb.json", "gpus": $2,
  "model": {"model_type": "gpt2", "resid_pdrop": 0, "num_hidden_layers": 8, "hidden_size": 32,
            "num_attention_heads": 4, "vocab_size": 61, "max_position_embeddings": 16},
  "plan": {"micro_batch": 1, "global_batch": 8, "sequence_length": 16, "precision": "fp32"},
  "train": {"steps": 3, "learning_rate": 0.01, "clip_norm": 1.0, "seed": 7}
}
JSON
}

# listens PID...: the addresses of this host at which the processes listen, each once, as /proc has
# them (0100007F is 127.0.0.1). REQUIRES: one network namespace.
listens() {
  for pid in "$@"; do
    sockets=$(ls -l "/proc/$pid/fd" 2>/dev/null | sed -n 's/.*socket:\[\([0-9]*\)\]/\1/p')
    for table in tcp tcp6; do
      awk -v sockets="$sockets" 'BEGIN { split(sockets, list); for (i in list) mine[list[i]] = 1 }
        $4 == "0A" && ($10 in mine) { sub(":.*", "", $2); print $2 }' "/proc/$pid/net/$table"
    done
  done | sort -u
}

# child LAUNCHER K: the pid of process K that a launcher started.
child() {
  for pid in $(pgrep -P "$1"); do
    if tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "RANK=$2"; then echo "$pid"; return; fi
  done
}

# children LAUNCHER N: waits until all N have exec'ed.
children() {
  for _ in $(seq 6000); do
    found=0
    for k in $(seq 0 $(($2 - 1))); do [ -n "$(child "$1" "$k")" ] && found=$((found + 1)); done
    [ "$found" -eq "$2" ] && return 0
    sleep 0.05
  done
  return 1
}

# gone PID...: no orphan is left.
gone() {
  for pid in "$@"; do
    for _ in $(seq 1200); do kill -0 "$pid" 2>/dev/null || break; sleep 0.05; done
    kill -0 "$pid" 2>/dev/null && { fail "process $pid is still there"; kill -9 "$pid"; }
  done
}
