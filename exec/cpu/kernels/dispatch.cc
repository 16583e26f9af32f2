// SPDX-License-Identifier: Apache-2.0
// Chooses the instruction set once, at the first call: REHEARSE_ISA's, or the fastest.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "exec/cpu/kernels/table.h"

namespace rehearse::exec {

const std::vector<KernelTable>& kernel_tables() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> list{generic_kernels()};
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      list.push_back(avx2_kernels());
    }
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw")) {
      list.push_back(avx512_kernels());
    }
#endif
    return list;
  }();
  return tables;
}

namespace {

Result<const KernelTable*> chosen() {
  const char* value = std::getenv("REHEARSE_ISA");
  const std::string asked = value == nullptr ? "" : value;
  if (asked.empty()) return &kernel_tables().back();
  std::string there;
  for (const KernelTable& table : kernel_tables()) {
    if (asked == table.name) return &table;
    there += (there.empty() ? "" : ", ") + std::string(table.name);
  }
  const bool known = asked == "avx2" || asked == "avx512";
  return Error{"REHEARSE_ISA: " +
               (known ? "this machine has no " + asked
                      : "no instruction set \"" + asked + "\" (generic, avx2 or avx512)") +
               "; there is " + there};
}

}  // namespace

Result<> instruction_set_as_asked() {
  const Result<const KernelTable*> found = chosen();
  if (!found) return found.error();
  return {};
}

const KernelTable& kernels() {
  static const KernelTable& table = [&]() -> const KernelTable& {
    const Result<const KernelTable*> found = chosen();
    if (found) return *found.value();
    std::fprintf(stderr, "%s\n", found.error().message.c_str());  // commands have asked before
    std::abort();
  }();
  return table;
}

std::string_view instruction_set() {
  return kernels().name;
}

std::int64_t kernel_room_bytes(std::int64_t head_dim) {
  return kernels().room_bytes(head_dim);
}

void linear(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w,
            float* y) {
  kernels().linear_bias(m, n, k, x, w, nullptr, y);
}
void linear_bias(std::int64_t m, std::int64_t n, std::int64_t k, const float* x, const float* w,
                 const float* bias, float* y) {
  kernels().linear_bias(m, n, k, x, w, bias, y);
}
void linear_input(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, const float* w,
                  float* dx) {
  kernels().linear_input(m, n, k, dy, w, dx);
}
void linear_weight(std::int64_t m, std::int64_t n, std::int64_t k, const float* dy, const float* x,
                   float* dw) {
  kernels().linear_weight(m, n, k, dy, x, dw);
}
void layer_norm(std::int64_t rows, std::int64_t h, const float* x, const float* weight,
                const float* bias, double epsilon, float* y, float* statistics) {
  kernels().layer_norm(rows, h, x, weight, bias, epsilon, y, statistics);
}
void layer_norm_backward(std::int64_t rows, std::int64_t h, const float* dy, const float* x,
                         const float* statistics, const float* weight, const float* residual,
                         float* dx, float* d_weight, float* d_bias) {
  kernels().layer_norm_backward(rows, h, dy, x, statistics, weight, residual, dx, d_weight, d_bias);
}
void rms_norm(std::int64_t rows, std::int64_t h, const float* x, const float* weight,
              double epsilon, float* y, float* statistics) {
  kernels().rms_norm(rows, h, x, weight, epsilon, y, statistics);
}
void rms_norm_backward(std::int64_t rows, std::int64_t h, const float* dy, const float* x,
                       const float* statistics, const float* weight, const float* residual,
                       float* dx, float* d_weight) {
  kernels().rms_norm_backward(rows, h, dy, x, statistics, weight, residual, dx, d_weight);
}
void add_bias(std::int64_t rows, std::int64_t cols, const float* bias, float* y) {
  for (std::int64_t r = 0; r < rows; ++r)
    kernels().add_residual(1, cols, y + r * cols, bias, nullptr, y + r * cols);
}
void add_residual(std::int64_t rows, std::int64_t cols, const float* x, const float* y,
                  const float* bias, float* out) {
  kernels().add_residual(rows, cols, x, y, bias, out);
}
void add_column_sums(std::int64_t rows, std::int64_t cols, const float* y, float* sums) {
  kernels().add_column_sums(rows, cols, y, sums);
}
void gelu(std::int64_t count, const float* u, float* g) {
  kernels().gelu(count, u, g);
}
void gelu_backward(std::int64_t count, const float* dg, const float* u, float* du) {
  kernels().gelu_backward(count, dg, u, du);
}
void swiglu(std::int64_t rows, std::int64_t f, const float* u, float* g) {
  kernels().swiglu(rows, f, u, g);
}
void swiglu_backward(std::int64_t rows, std::int64_t f, const float* dg, const float* u,
                     float* du) {
  kernels().swiglu_backward(rows, f, dg, u, du);
}
void attention(const AttentionShape& shape, const float* qkv, float* o, float* lse) {
  kernels().attention(shape, qkv, o, lse);
}
void attention_backward(const AttentionShape& shape, const float* d_o, const float* qkv,
                        const float* o, const float* lse, float* dqkv, float* delta) {
  kernels().attention_backward(shape, d_o, qkv, o, lse, dqkv, delta);
}
void attention_part(const AttentionPart& part, const float* qkv, const float* kv, float* sum,
                    float* lse) {
  kernels().attention_part(part, qkv, kv, sum, lse);
}
void attention_part_backward(const AttentionPart& part, const float* d_o, const float* qkv,
                             const float* kv, const float* o, const float* lse, float* dq,
                             float* dkv, float* delta) {
  kernels().attention_part_backward(part, d_o, qkv, kv, o, lse, dq, dkv, delta);
}
void row_maxima(std::int64_t rows, std::int64_t columns, std::int64_t valid, const float* logits,
                float* maxima) {
  kernels().row_maxima(rows, columns, valid, logits, maxima);
}
void row_sums(std::int64_t rows, std::int64_t columns, std::int64_t valid, std::int64_t first,
              const float* logits, const float* maxima, const std::int32_t* targets, float* sums) {
  kernels().row_sums(rows, columns, valid, first, logits, maxima, targets, sums);
}
void loss_and_gradient(std::int64_t rows, std::int64_t columns, std::int64_t valid,
                       std::int64_t first, const float* logits, const float* maxima,
                       const float* sums, const std::int32_t* targets, float scale, float* d_logits,
                       float* loss) {
  kernels().loss_and_gradient(rows, columns, valid, first, logits, maxima, sums, targets, scale,
                              d_logits, loss);
}

}  // namespace rehearse::exec
