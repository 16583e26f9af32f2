#define REHEARSE_ISA baseline
#define REHEARSE_TABLE baseline_kernels
#define REHEARSE_LANES 4
#define REHEARSE_EIGEN
#include "exec/kernels/kernels.inc"
