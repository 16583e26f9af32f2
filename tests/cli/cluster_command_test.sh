#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rehearse cluster: files of a machine, or its own commands, become a cluster that simulates.
# Usage: cluster_command_test.sh REHEARSE.
cd "$(dirname "$0")/../.." || exit 2
rehearse=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
. tests/command.sh
machines=tests/data/machines

# One file is enough where it says everything: what it makes is a cluster.
says "8 x NVIDIA A100-SXM4-80GB, described as in dgx-a100-80gb" \
  cluster --nccl-topology $machines/simai-8-a100.xml -o "$work/a100.json"
grep -q "not known, and null: .*nics.one_way_latency_us" "$work/out" || fail "unknowns are not listed"
says "A100-SXM4-80GB" simulate 3d-8-gpus --cluster "$work/a100.json"
says_not "before it can be simulated" cluster --nccl-topology $machines/simai-8-a100.xml

# Without -o the file is all of stdout.
"$rehearse" cluster --nccl-topology $machines/rccl-8-mi300x.xml >"$work/m.json" 2>"$work/err" || fail "stdout"
"$rehearse" simulate 3d-8-gpus --cluster "$work/m.json" >"$work/out" || fail "what stdout had: $(cat "$work/out")"

# What is measured is predicted with: two nodes' all-reduce in the calibration.
says "8 x NVIDIA H100 80GB HBM3" cluster --nvidia-smi $machines/h100-8.txt \
  --nccl-tests $machines/gcp-a3-mega-all-reduce.txt -o "$work/h100.json"
grep -q '"nodes": 2' "$work/h100.json" || fail "no measured all-reduce"

# What lacks something says what.
says "before it can be simulated: rtx.json:4: cluster.gpu.sm_count: is required" \
  cluster --nvidia-smi $machines/rtx-6000-ada-4.txt -o "$work/rtx.json"

# This machine's own commands, by a double of nvidia-smi: there, failing, absent.
mkdir "$work/bin" "$work/empty"
cat >"$work/bin/nvidia-smi" <<'X'
#!/bin/sh
[ "$1" = -L ] && echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)" && exit
[ "$1" = topo ] && printf '\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-3\t0\n'
X
chmod +x "$work/bin/nvidia-smi"
PATH="$work/bin:$PATH" says "1 x NVIDIA H100 80GB HBM3, described as in dgx-h100" cluster -o "$work/own.json"
grep -q '"memory_gib": [0-9]' "$work/own.json" || fail "the host's memory is known here"
"$rehearse" simulate tiny-one --cluster "$work/own.json" >"$work/out" || fail "own: $(cat "$work/out")"
printf '#!/bin/sh\nexit 9\n' >"$work/bin/nvidia-smi"
PATH="$work/bin:$PATH" refused 2 "nvidia-smi: is not here, or failed" cluster

# A torus of links is of some size; one of a network is not modelled.
refused 2 "scale_up.axes: is required where kind is torus" simulate 3d-8-gpus --set cluster.scale_up.kind=torus
refused 2 "topology: .*torus" simulate 3d-8-gpus --set 'cluster.fabric={"topology": "torus"}'

# Broken input is one line.
echo "<system><cpu>" >"$work/broken.xml"
refused 2 "broken.xml:2: <cpu> of line 1 is not closed" cluster --nccl-topology "$work/broken.xml"
refused 2 "neither the matrix" cluster --nvidia-smi README.md
refused 2 "no table of nccl-tests" cluster --nccl-tests README.md
refused 2 "absent.txt" cluster --nvidia-smi "$work/absent.txt"
refused 2 "writes json, not svg" cluster --nvidia-smi $machines/h100-8.txt -o "$work/x.svg"
refused 2 "nvidia-smi shows 4 GPUs and NCCL 8" cluster --nvidia-smi $machines/rtx-6000-ada-4.txt \
  --nccl-topology $machines/simai-8-a100.xml
exit $status
