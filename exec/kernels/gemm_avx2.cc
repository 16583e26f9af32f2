#define REHEARSE_EIGEN eigen_avx2
#define REHEARSE_GEMM gemm_avx2
#include "exec/kernels/gemm_impl.inc"
