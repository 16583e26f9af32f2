// SPDX-License-Identifier: Apache-2.0
// Which row of a rank's part of the table a token adds to: what the sort goes by, and the gradient.
#pragma once

#include "exec/cuda/kernels/device.cuh"

namespace rehearse::exec::cuda {

// The row of the table that a token adds to; `rows` where it adds to none.
__device__ __forceinline__ std::int32_t row_of(std::int32_t id, std::int32_t first,
                                               std::int32_t rows, std::int64_t frozen) {
  const std::int32_t row = id - first;
  return row >= 0 && row < rows && id != frozen ? row : rows;
}

}  // namespace rehearse::exec::cuda
