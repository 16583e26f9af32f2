// SPDX-License-Identifier: Apache-2.0
#define REHEARSE_ISA generic
#define REHEARSE_TABLE generic_kernels
#define REHEARSE_LANES 4
#define REHEARSE_EIGEN
#include "exec/cpu/kernels/kernels.inc"
