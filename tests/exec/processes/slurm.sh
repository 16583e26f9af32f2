# SPDX-License-Identifier: Apache-2.0
# Sourced: Slurm of the distribution on this host alone, for this user, in $work/slurm: munged, slurmctld and slurmd on ports
# of their own, nothing of /etc. slurm_up starts it (false: why, in $work/slurm/why), slurm_down ends it.
slurm_up() {
  local home=$work/slurm user port=$((32100 + $$ % 300 * 2)) program
  user=$(id -un)
  mkdir -p "$home/state" "$home/spool" "$home/munge" && chmod 755 "$work" "$home" && chmod 700 "$home/munge"
  PATH=$PATH:/usr/sbin:/sbin
  for program in munged slurmctld slurmd; do
    command -v $program >/dev/null || { echo "there is no $program" >"$home/why"; return 1; }
  done
  # Users of the socket's folder must be able to enter it, and nobody else may write there.
  mkdir -p "$home/run" && chmod 755 "$home/run"
  (umask 077 && head -c 128 /dev/urandom >"$home/munge/key")
  munged --force --key-file="$home/munge/key" --socket="$home/run/munge" --pid-file="$home/munge/pid" \
    --log-file="$home/munge/log" --seed-file="$home/munge/seed" >"$home/why" 2>&1 || return 1
  cat >"$home/slurm.conf" <<CONF
ClusterName=rehearse
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$home/run/munge
SlurmctldPort=$port
SlurmdPort=$((port + 1))
StateSaveLocation=$home/state
SlurmdSpoolDir=$home/spool
SlurmctldPidFile=$home/slurmctld.pid
SlurmdPidFile=$home/slurmd.pid
SlurmctldLogFile=$home/slurmctld.log
SlurmdLogFile=$home/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
CONF
  export SLURM_CONF=$home/slurm.conf
  slurmctld -c >"$home/why" 2>&1 && slurmd >>"$home/why" 2>&1 || return 1
  for _ in $(seq 300); do
    sinfo -h -o %T 2>/dev/null | grep -q idle && return 0
    sleep 0.1
  done
  cat "$home/slurmctld.log" "$home/slurmd.log" >"$home/why"
  return 1
}
slurm_down() {
  local pid
  for pid in "$work"/slurm/slurmd.pid "$work"/slurm/slurmctld.pid "$work"/slurm/munge/pid; do
    [ -s "$pid" ] && kill "$(cat "$pid")" 2>/dev/null
  done
}
