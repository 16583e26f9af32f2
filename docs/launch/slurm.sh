#!/bin/bash
#SBATCH --job-name=rehearse
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=01:00:00
# A process per GPU on two nodes of eight: sbatch docs/launch/slurm.sh SCENARIO [ARGUMENTS of rehearse run]
set -eu
# One secret of this job, on a file system that all nodes see (docs/security.md).
export REHEARSE_SECRET_FILE=${REHEARSE_SECRET_FILE:-$HOME/rehearse.$SLURM_JOB_ID.secret}
[ -e "$REHEARSE_SECRET_FILE" ] || (umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' >"$REHEARSE_SECRET_FILE")
export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^docker,lo}
# A task that dies ends the step; process 0 says which it was before.
srun --kill-on-bad-exit=1 --wait=30 rehearse run "$@"
