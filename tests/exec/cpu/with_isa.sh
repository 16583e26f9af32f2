#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A test again, with the kernels of another instruction set.
# Usage: with_isa.sh REHEARSE SET TEST [ARGUMENTS]. Exit 77: nothing to run here, and why.
rehearse=$1 set=$2
shift 2
there=$(REHEARSE_ISA=none "$rehearse" run /no/such/scenario.json 2>&1)
there=${there##*there is }
chosen=${REHEARSE_ISA:-${there##*, }}
# Sets that have products of bf16 of their own have AVX-512's other kernels, and its bits in fp32.
case $chosen in avx512_bf16 | amx) chosen=avx512 ;; esac
case ", $there," in
  *", $set,"*) ;;
  *) echo "SKIPPED: this machine has no $set, only $there"; exit 77 ;;
esac
[ "$set" = "$chosen" ] && { echo "SKIPPED: $set is what the test itself takes here"; exit 77; }
REHEARSE_ISA=$set exec "$@"
