#define REHEARSE_EIGEN eigen_baseline
#define REHEARSE_GEMM gemm_baseline
#include "exec/kernels/gemm_impl.inc"
