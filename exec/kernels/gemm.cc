#include "exec/kernels/gemm.h"

#include "exec/kernels/gemm_table.h"

namespace rehearse::exec {
namespace {

struct Chosen {
  std::string_view name = "baseline";
  GemmTable table = gemm_baseline();
  Chosen() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
      name = "avx512";
      table = gemm_avx512();
    } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      name = "avx2";
      table = gemm_avx2();
    }
#endif
  }
};

const Chosen& chosen() {
  static const Chosen once;
  return once;
}

}  // namespace

std::string_view instruction_set() { return chosen().name; }

void linear(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w, float* y) {
  chosen().table.linear(m, n, k, x, w, y);
}
void linear_input(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, const float* w,
                  float* dx) {
  chosen().table.linear_input(m, n, k, dy, w, dx);
}
void linear_weight(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, const float* x,
                   float* dw) {
  chosen().table.linear_weight(m, n, k, dy, x, dw);
}
void tile_product(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
                  const float* b, std::int64_t ldb, float* c, std::int64_t ldc, float alpha) {
  chosen().table.product(m, n, k, a, lda, b, ldb, c, ldc, alpha);
}
void tile_add(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
              const float* b, std::int64_t ldb, float* c, std::int64_t ldc) {
  chosen().table.add(m, n, k, a, lda, b, ldb, c, ldc, 1.0F);
}
void tile_add_transposed(std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                         std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                         std::int64_t ldc) {
  chosen().table.add_transposed(m, n, k, a, lda, b, ldb, c, ldc, 1.0F);
}

}  // namespace rehearse::exec
