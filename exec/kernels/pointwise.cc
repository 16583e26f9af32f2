#include <cmath>

#include "exec/kernels/kernels.h"

namespace rehearse::exec {
namespace {

constexpr float kRoot = 0.7978845608028654F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

}  // namespace

void add_bias(std::int64_t rows, std::int64_t cols, const float* bias, float* y) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) y[r * cols + c] += bias[c];
  }
}

void add_residual(std::int64_t rows, std::int64_t cols, const float* x, const float* y,
                  const float* bias, float* out) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      const std::int64_t i = r * cols + c;
      out[i] = x[i] + (bias == nullptr ? y[i] : y[i] + bias[c]);
    }
  }
}

void gelu(std::int64_t count, const float* u, float* g) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = u[i];
    g[i] = 0.5F * x * (1.0F + std::tanh(kRoot * (x + kCubic * x * x * x)));
  }
}

void gelu_backward(std::int64_t count, const float* dg, const float* u, float* du) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float x = u[i];
    const float t = std::tanh(kRoot * (x + kCubic * x * x * x));
    const float slope = kRoot * (1.0F + 3.0F * kCubic * x * x);
    du[i] = dg[i] * (0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope);
  }
}

void swiglu(std::int64_t rows, std::int64_t f, const float* u, float* g) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *gate = u + r * 2 * f, *up = gate + f;
    for (std::int64_t i = 0; i < f; ++i) {
      g[r * f + i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
    }
  }
}

void swiglu_backward(std::int64_t rows, std::int64_t f, const float* dg, const float* u, float* du) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *gate = u + r * 2 * f, *up = gate + f, *g = dg + r * f;
    float *d_gate = du + r * 2 * f, *d_up = d_gate + f;
    for (std::int64_t i = 0; i < f; ++i) {
      const float sigmoid = 1.0F / (1.0F + std::exp(-gate[i]));
      const float silu = gate[i] * sigmoid;
      d_up[i] = g[i] * silu;
      d_gate[i] = g[i] * up[i] * (sigmoid + silu * (1.0F - sigmoid));
    }
  }
}

void rope(std::int64_t tokens, std::int64_t first, std::int64_t sequence, std::int64_t heads,
          std::int64_t head_dim, std::int64_t columns, double theta, bool inverse, float* qkv) {
  const std::int64_t half = head_dim / 2;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const auto position = static_cast<double>((first + t) % sequence);
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const auto c = static_cast<float>(std::cos(angle));
      const auto s = static_cast<float>(inverse ? -std::sin(angle) : std::sin(angle));
      for (std::int64_t head = 0; head < heads; ++head) {
        float* x = qkv + t * columns + head * head_dim;
        const float a = x[i], b = x[i + half];
        x[i] = a * c - b * s;
        x[i + half] = b * c + a * s;
      }
    }
  }
}

}  // namespace rehearse::exec
