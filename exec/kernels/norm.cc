// Sums over a row, and of parameter gradients over rows, run in fp64: they decide how far a run in
// fp32 drifts from one in fp64.
#include <algorithm>
#include <array>
#include <cmath>

#include "exec/kernels/kernels.h"

namespace rehearse::exec {
namespace {

constexpr std::int64_t kColumns = 512;  // of a parameter gradient that are summed at a time

// to[c] += sum over rows of term(row, c)
template <class Term>
void add_over_rows(std::int64_t rows, std::int64_t cols, float* to, Term term) {
  if (to == nullptr) return;
  std::array<double, kColumns> sum;
  for (std::int64_t begin = 0; begin < cols; begin += kColumns) {
    const std::int64_t count = std::min(kColumns, cols - begin);
    sum.fill(0);
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < count; ++c) {
        sum[static_cast<std::size_t>(c)] += static_cast<double>(term(r, begin + c));
      }
    }
    for (std::int64_t c = 0; c < count; ++c) {
      to[begin + c] += static_cast<float>(sum[static_cast<std::size_t>(c)]);
    }
  }
}

}  // namespace

void add_column_sums(std::int64_t rows, std::int64_t cols, const float* y, float* sums) {
  add_over_rows(rows, cols, sums, [&](std::int64_t r, std::int64_t c) { return y[r * cols + c]; });
}

void layer_norm(std::int64_t rows, std::int64_t h, const float* x, const float* weight,
                const float* bias, double epsilon, float* y, float* statistics) {
  const auto n = static_cast<double>(h);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * h;
    double sum = 0;
    for (std::int64_t i = 0; i < h; ++i) sum += static_cast<double>(in[i]);
    const auto mean = static_cast<float>(sum / n);
    double squares = 0;
    for (std::int64_t i = 0; i < h; ++i) {
      squares += static_cast<double>((in[i] - mean) * (in[i] - mean));
    }
    const auto rstd = static_cast<float>(1.0 / std::sqrt(squares / n + epsilon));
    float* to = y + r * h;
    for (std::int64_t i = 0; i < h; ++i) {
      to[i] = (in[i] - mean) * rstd * weight[i] + (bias == nullptr ? 0.0F : bias[i]);
    }
    statistics[2 * r] = mean;
    statistics[2 * r + 1] = rstd;
  }
}

void layer_norm_backward(std::int64_t rows, std::int64_t h, const float* dy, const float* x,
                         const float* statistics, const float* weight, const float* residual,
                         float* dx, float* d_weight, float* d_bias) {
  add_over_rows(rows, h, d_weight, [&](std::int64_t r, std::int64_t c) {
    return dy[r * h + c] * (x[r * h + c] - statistics[2 * r]) * statistics[2 * r + 1];
  });
  add_over_rows(rows, h, d_bias, [&](std::int64_t r, std::int64_t c) { return dy[r * h + c]; });
  for (std::int64_t r = 0; r < rows; ++r) {
    const float mean = statistics[2 * r], rstd = statistics[2 * r + 1];
    const float *g = dy + r * h, *in = x + r * h;
    double sums = 0, products = 0;
    for (std::int64_t i = 0; i < h; ++i) {
      const float scaled = g[i] * weight[i], hat = (in[i] - mean) * rstd;
      sums += static_cast<double>(scaled);
      products += static_cast<double>(scaled * hat);
    }
    const auto sum = static_cast<float>(sums / static_cast<double>(h));
    const auto product = static_cast<float>(products / static_cast<double>(h));
    const float* add = residual == nullptr ? nullptr : residual + r * h;
    float* to = dx + r * h;
    for (std::int64_t i = 0; i < h; ++i) {
      const float hat = (in[i] - mean) * rstd;
      const float value = rstd * (g[i] * weight[i] - sum - hat * product);
      to[i] = add == nullptr ? value : value + add[i];
    }
  }
}

void rms_norm(std::int64_t rows, std::int64_t h, const float* x, const float* weight, double epsilon,
              float* y, float* statistics) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float* in = x + r * h;
    double squares = 0;
    for (std::int64_t i = 0; i < h; ++i) squares += static_cast<double>(in[i] * in[i]);
    const auto rstd = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(h) + epsilon));
    for (std::int64_t i = 0; i < h; ++i) y[r * h + i] = in[i] * rstd * weight[i];
    statistics[r] = rstd;
  }
}

void rms_norm_backward(std::int64_t rows, std::int64_t h, const float* dy, const float* x,
                       const float* statistics, const float* weight, const float* residual,
                       float* dx, float* d_weight) {
  add_over_rows(rows, h, d_weight, [&](std::int64_t r, std::int64_t c) {
    return dy[r * h + c] * x[r * h + c] * statistics[r];
  });
  for (std::int64_t r = 0; r < rows; ++r) {
    const float rstd = statistics[r];
    const float *g = dy + r * h, *in = x + r * h;
    double products = 0;
    for (std::int64_t i = 0; i < h; ++i) {
      products += static_cast<double>(g[i] * weight[i] * in[i] * rstd);
    }
    const auto product = static_cast<float>(products / static_cast<double>(h));
    const float* add = residual == nullptr ? nullptr : residual + r * h;
    for (std::int64_t i = 0; i < h; ++i) {
      const float value =
          rstd * (g[i] * weight[i] - in[i] * rstd * product);
      dx[r * h + i] = add == nullptr ? value : value + add[i];
    }
  }
}

}  // namespace rehearse::exec
