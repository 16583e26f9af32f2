#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints registers, static shared memory and spills of every kernel for sm_80 and sm_90 (wgmma: sm_90a), as
# ptxas reports them. Run by hand, in the project's root; needs nvcc (c++filt names the kernels).
set -eu
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT
printf '%-7s %9s %10s %11s  %s\n' arch registers 'shared[B]' 'spilled[B]' kernel
for source in exec/cuda/kernels/*.cu exec/cuda/kernels/attention/*.cu exec/cuda/kernels/experts/*.cu; do
  case $source in
    *wgmma*) code="-gencode arch=compute_90a,code=sm_90a" ;;
    *) code="-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90" ;;
  esac
  # shellcheck disable=SC2086
  nvcc -std=c++20 -O3 --expt-relaxed-constexpr -I. -Xptxas=-v $code -c "$source" -o "$out/kernel.o" 2>&1 | c++filt | awk '
      /Compiling entry function/ {
        arch = $NF; gsub(/\047/, "", arch)
        kernel = $0; sub(/.*function \047(void )?/, "", kernel); gsub(/\(anonymous namespace\)::/, "", kernel)
        gsub(/rehearse::exec::cuda::/, "", kernel); sub(/\(.*/, "", kernel)
      }
      /spill stores/ { for (i = 2; i <= NF; ++i) if ($i == "spill" && $(i + 1) ~ /^stores/) spilled = $(i - 2) }
      /Used .* registers/ {
        shared = 0
        for (i = 1; i <= NF; ++i) {
          if ($i ~ /^registers/) registers = $(i - 1)
          if ($i == "smem," || $i == "smem") shared = $(i - 2)
        }
        printf "%-7s %9d %10d %11d  %s\n", arch, registers, shared, spilled, kernel
      }'
done
