// The products of one instruction set, as function pointers.
#pragma once

#include <cstdint>

namespace rehearse::exec {

struct GemmTable {
  using Linear = void (*)(std::int64_t, std::int64_t, std::int64_t, const float*, const float*, float*);
  using Tile = void (*)(std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t,
                        const float*, std::int64_t, float*, std::int64_t, float);
  Linear linear, linear_input, linear_weight;
  Tile product, add, add_transposed;
};

GemmTable gemm_baseline();
GemmTable gemm_avx2();
GemmTable gemm_avx512();

}  // namespace rehearse::exec
