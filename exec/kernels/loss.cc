#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "exec/kernels/kernels.h"

namespace rehearse::exec {

void embed(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const float* table,
           std::int64_t first, std::int64_t rows, float* out) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::int64_t row = ids[t] - first;
    if (row >= 0 && row < rows) {
      std::copy_n(table + row * h, h, out + t * h);
    } else {
      std::fill_n(out + t * h, h, 0.0F);
    }
  }
}

// Tokens of one row are added in token order, row after row.
void embed_backward(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const float* dy,
                    std::int64_t first, std::int64_t rows, std::int32_t* order, float* d_table) {
  std::iota(order, order + tokens, 0);
  std::sort(order, order + tokens, [&](std::int32_t a, std::int32_t b) {
    return ids[a] != ids[b] ? ids[a] < ids[b] : a < b;
  });
  for (std::int64_t k = 0; k < tokens; ++k) {
    const std::int64_t t = order[k], row = ids[t] - first;
    if (row < 0 || row >= rows) continue;
    for (std::int64_t i = 0; i < h; ++i) d_table[row * h + i] += dy[t * h + i];
  }
}

void row_maxima(std::int64_t rows, std::int64_t columns, std::int64_t valid, const float* logits,
                float* maxima) {
  for (std::int64_t r = 0; r < rows; ++r) {
    float top = -std::numeric_limits<float>::infinity();
    for (std::int64_t c = 0; c < valid; ++c) top = std::max(top, logits[r * columns + c]);
    maxima[r] = top;
  }
}

void row_sums(std::int64_t rows, std::int64_t columns, std::int64_t valid, std::int64_t first,
              const float* logits, const float* maxima, const std::int32_t* targets, float* sums) {
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t c = 0; c < valid; ++c) {
      sum += static_cast<double>(std::exp(logits[r * columns + c] - maxima[r]));
    }
    const std::int64_t target = targets[r] - first;
    sums[2 * r] = static_cast<float>(sum);
    sums[2 * r + 1] = target >= 0 && target < valid ? logits[r * columns + target] : 0.0F;
  }
}

void loss_and_gradient(std::int64_t rows, std::int64_t columns, std::int64_t valid,
                       std::int64_t first, const float* logits, const float* maxima,
                       const float* sums, const std::int32_t* targets, float scale, float* d_logits,
                       float* loss) {
  double total = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const float inverse = 1.0F / sums[2 * r];
    total += static_cast<double>(std::log(sums[2 * r]) + maxima[r] - sums[2 * r + 1]);
    const float* in = logits + r * columns;
    float* out = d_logits + r * columns;
    for (std::int64_t c = 0; c < valid; ++c) {
      out[c] = scale * std::exp(in[c] - maxima[r]) * inverse;
    }
    std::fill(out + valid, out + columns, 0.0F);
    const std::int64_t target = targets[r] - first;
    if (target >= 0 && target < valid) out[target] -= scale;
  }
  *loss += static_cast<float>(static_cast<double>(scale) * total);
}

}  // namespace rehearse::exec
