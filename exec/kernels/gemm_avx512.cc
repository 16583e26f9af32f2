#define REHEARSE_EIGEN eigen_avx512
#define REHEARSE_GEMM gemm_avx512
#include "exec/kernels/gemm_impl.inc"
