#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Does exec/cuda compile with CUDA 12 and with CUDA 13? The toolkit of this build has; the other one's headers are asked here,
# and its nvcc where there is one. A toolkit: a folder with include/, or several, joined by colons, in $REHEARSE_CUDA_12 or
# $REHEARSE_CUDA_13; else /usr/local/cuda*, or CUDA as Python packages bring it (headers alone).
# This build's nvcc is asked for the processors that it has no code of its own for: a file of kernels each.
# Usage: toolkits_test.sh CXX NVCC VERSION_OF_THE_BUILD NCCL_INCLUDE [CUDNN_INCLUDE]. SKIPPED for a toolkit that is not there, which is said.
cd "$(dirname "$0")/../.." || exit 2
cxx=$1 own_nvcc=$2 built=${3%%.*} nccl=$4 cudnn=${5:-}
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
status=0
flags=(-std=c++20 -O3 --expt-relaxed-constexpr -Werror=all-warnings -I. -cubin)
# version INCLUDE...: the major version of CUDA's headers there.
version() {
  local folder
  for folder in "$@"; do sed -n 's/^#define CUDART_VERSION *\([0-9]*\)[0-9][0-9][0-9].*/\1/p' "$folder/cuda_runtime_api.h" 2>/dev/null; done | head -1
}
# includes MAJOR: folders of headers, one a line; nothing where there are none of that version.
includes() {
  local given=REHEARSE_CUDA_$1 root folders
  for root in "${!given:-}" /usr/local/cuda /usr/local/cuda-* /usr/lib/cuda \
    "$(python3 -c 'import glob, site; print(":".join(sorted(f for p in site.getsitepackages() for f in glob.glob(p + "/nvidia/*"))))' 2>/dev/null)"; do
    [ -n "$root" ] || continue
    readarray -t folders < <(tr ':' '\n' <<<"$root" | sed 's|$|/include|')
    [ "$(version "${folders[@]}")" = "$1" ] || continue
    printf '%s\n' "${folders[@]}"
    return
  done
}
# has HEADER FOLDER...: one of them has it.
has() { local header=$1 folder; shift; for folder in "$@"; do [ -e "$folder/$header" ] && return; done; return 1; }

for major in 12 13; do
  [ "$major" = "$built" ] && { echo "CUDA $major: this build"; continue; }
  readarray -t folders < <(includes $major)
  [ ${#folders[@]} -gt 0 ] || { echo "SKIPPED: CUDA $major is not installed"; continue; }
  has nccl.h "${folders[@]}" || folders+=("$nccl")
  has cublasLt.h "${folders[@]}" || echo "SKIPPED: CUDA $major has no cublasLt.h: products were not compiled"
  compiled=0
  has cudnn_graph.h "${folders[@]}" || [ -z "$cudnn" ] || folders+=("$cudnn")
  has cudnn_graph.h "${folders[@]}" || echo "SKIPPED: CUDA $major has no cudnn_graph.h: cuDNN's attention was not compiled"
  for source in exec/cuda/*.cc exec/cuda/calls/*.cc exec/cuda/cudnn/*.cc; do
    [[ $source == exec/cuda/calls/gemm* ]] && ! has cublasLt.h "${folders[@]}" && continue
    [[ $source == exec/cuda/cudnn/* ]] && ! has cudnn_graph.h "${folders[@]}" && continue
    "$cxx" -std=c++20 -fsyntax-only -Wall -Wextra -Werror -Wno-missing-field-initializers -I. "${folders[@]/#/-isystem}" "$source" 2>"$work/said" ||
      { echo "CUDA $major: $source: $(grep -m1 error "$work/said")"; status=1; }
    compiled=$((compiled + 1))
  done
  kernels=0
  nvcc=${folders[0]%/include}/bin/nvcc
  if [ -x "$nvcc" ]; then
    for source in exec/cuda/kernels/*.cu exec/cuda/kernels/*/*.cu; do
      arch=80 && [[ $source == *wgmma* ]] && arch=90a
      "$nvcc" "${flags[@]}" -arch=sm_$arch -o "$work/cubin" "$source" 2>"$work/said" ||
        { echo "CUDA $major: $source: $(grep -m1 error "$work/said")"; status=1; }
      kernels=$((kernels + 1))
    done
  fi
  echo "CUDA $major: $compiled files of host code$([ $kernels -gt 0 ] && echo " and $kernels of kernels" || echo "; SKIPPED: it has no nvcc, kernels were not compiled")"
done
for arch in 86 89 120; do
  "$own_nvcc" "${flags[@]}" -arch=sm_$arch -o "$work/cubin" exec/cuda/kernels/arrays.cu 2>"$work/said" ||
    { echo "sm_$arch: $(grep -m1 error "$work/said")"; status=1; }
done
exit $status
