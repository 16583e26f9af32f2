// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "exec/cpu/collectives.h"
#include "exec/cpu/kernels/gemm.h"
#include "exec/cpu/kernels/kernels.h"
#include "exec/cpu/optimizer.h"

namespace rehearse::exec {
namespace {

// Memory from the system, zeroed when it is first touched: what a step never uses takes no room.
// Large blocks are asked for in huge pages.
class Pages {
 public:
  static std::optional<Pages> take(std::size_t bytes) {
    constexpr std::size_t kHuge = std::size_t{1} << 21;
    const std::size_t slack = bytes >= kHuge ? kHuge : 0;  // to begin at a huge page
    void* base =
        mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return std::nullopt;
    Pages pages;
    pages.base_ = base;
    pages.bytes_ = bytes + slack;
    pages.begin_ = static_cast<std::byte*>(base);
    if (slack > 0) {
      pages.begin_ += (kHuge - reinterpret_cast<std::uintptr_t>(base) % kHuge) % kHuge;
      madvise(pages.begin_, bytes / kHuge * kHuge, MADV_HUGEPAGE);  // a wish: it may be refused
    }
    return pages;
  }
  Pages(Pages&& other) noexcept { *this = std::move(other); }
  Pages& operator=(Pages&& other) noexcept {
    std::swap(base_, other.base_);
    std::swap(bytes_, other.bytes_);
    std::swap(begin_, other.begin_);
    return *this;
  }
  ~Pages() {
    if (base_ != nullptr) munmap(base_, bytes_);
  }
  std::byte* begin() const { return begin_; }

 private:
  Pages() = default;
  void* base_ = nullptr;
  std::size_t bytes_ = 0;
  std::byte* begin_ = nullptr;
};

const float* f(const void* data) {
  return static_cast<const float*>(data);
}
float* f(void* data) {
  return static_cast<float*>(data);
}
std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  std::string_view device() const override { return instruction_set(); }

  Result<std::byte*> allocate(std::int32_t rank, std::int64_t bytes) override {
    return pages("the arena", rank, bytes);
  }
  Result<std::byte*> allocate_host(std::int32_t rank, std::int64_t bytes) override {
    return pages("the host's arena", rank, bytes);
  }
  Result<std::byte*> pages(std::string_view what, std::int32_t rank, std::int64_t bytes) {
    std::optional<Pages> pages = Pages::take(size(std::max<std::int64_t>(bytes, 1)));
    if (!pages) {
      return Error{"no memory for " + std::string(what) + " of rank " + std::to_string(rank) +
                   ": " + std::to_string(bytes) + " bytes"};
    }
    arenas_.push_back(std::move(*pages));
    return arenas_.back().begin();
  }
  void write(std::byte* to, const void* from, std::int64_t bytes) override {
    std::memcpy(to, from, size(bytes));
  }
  void read(void* to, const std::byte* from, std::int64_t bytes) override {
    std::memcpy(to, from, size(bytes));
  }

  void clear(Lane, void* to, std::int64_t bytes) override { std::memset(to, 0, size(bytes)); }
  void fetch(Lane, void* to, const void* host, std::int64_t bytes) override {
    std::memcpy(to, host, size(bytes));
  }
  void offload(Lane, void* host, const void* from, std::int64_t bytes) override {
    std::memcpy(host, from, size(bytes));
  }
  void to_host(Lane, std::byte* host, const std::byte* from, std::int64_t bytes) override {
    std::memcpy(host, from, size(bytes));
  }
  void from_host(Lane, std::byte* to, const std::byte* host, std::int64_t bytes) override {
    std::memcpy(to, host, size(bytes));
  }
  void transfer(Lane, const void* from, Lane, void* to, std::int64_t bytes) override {
    std::memcpy(to, from, size(bytes));
  }
  void exchange(const Exchange& exchange) override { perform(exchange); }
  void cast(Lane, std::int64_t count, const float* from, void* to) override {
    if (from != to) std::memmove(to, from, size(count) * sizeof(float));
  }

  void add(Lane, std::int64_t count, const float* from, float* to) override {
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
  }
  void norms(Lane, std::span<const NormRange> ranges, const float* loss, std::int64_t slots,
             double* norms) override {
    std::fill_n(norms, slots, 0.0);
    for (const NormRange& range : ranges) {
      norms[range.slot] += sum_of_squares({range.data, size(range.elements)});
    }
    if (loss != nullptr) norms[slots - 1] = static_cast<double>(*loss);
  }
  void adamw(Lane, const AdamwArguments& a) override {
    double squares = 0;
    for (std::int64_t k = 0; k + 1 < a.slots; ++k) squares += a.norms[k];
    const float scale = clip_factor(std::sqrt(squares), a.options->clip_norm);
    float* parameter = f(a.parameter);
    for (const AdamwRange& range : a.ranges) {
      const std::size_t n = size(range.end - range.begin);
      exec::adamw({parameter + range.begin, n}, {a.gradient + range.begin, n},
                  {a.m + range.begin, n}, {a.v + range.begin, n}, *a.options, a.rate, range.decay,
                  a.step, scale);
    }
  }

  void linear(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x, const void* w,
              const void* bias, void* y) override {
    exec::linear_bias(m, n, k, f(x), f(w), f(bias), f(y));
  }
  void logits(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* x, const void* w,
              float* y) override {
    exec::linear(m, n, k, f(x), f(w), y);
  }
  void linear_input(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* dy,
                    const void* w, void* dx) override {
    exec::linear_input(m, n, k, f(dy), f(w), f(dx));
  }
  void linear_weight(Lane, std::int64_t m, std::int64_t n, std::int64_t k, const void* dy,
                     const void* x, float* dw) override {
    exec::linear_weight(m, n, k, f(dy), f(x), dw);
  }

  void layer_norm(Lane, std::int64_t rows, std::int64_t h, const void* x, const void* weight,
                  const void* bias, double epsilon, void* y, float* statistics) override {
    exec::layer_norm(rows, h, f(x), f(weight), f(bias), epsilon, f(y), statistics);
  }
  void layer_norm_backward(Lane, std::int64_t rows, std::int64_t h, const void* dy, const void* x,
                           const float* statistics, const void* weight, const void* residual,
                           void* dx, float* d_weight, float* d_bias) override {
    exec::layer_norm_backward(rows, h, f(dy), f(x), statistics, f(weight), f(residual), f(dx),
                              d_weight, d_bias);
  }
  void rms_norm(Lane, std::int64_t rows, std::int64_t h, const void* x, const void* weight,
                double epsilon, void* y, float* statistics) override {
    exec::rms_norm(rows, h, f(x), f(weight), epsilon, f(y), statistics);
  }
  void rms_norm_backward(Lane, std::int64_t rows, std::int64_t h, const void* dy, const void* x,
                         const float* statistics, const void* weight, const void* residual,
                         void* dx, float* d_weight) override {
    exec::rms_norm_backward(rows, h, f(dy), f(x), statistics, f(weight), f(residual), f(dx),
                            d_weight);
  }

  void add_residual(Lane, std::int64_t rows, std::int64_t cols, const void* x, const void* y,
                    const void* bias, void* out) override {
    exec::add_residual(rows, cols, f(x), f(y), f(bias), f(out));
  }
  void add_column_sums(Lane, std::int64_t rows, std::int64_t cols, const void* y,
                       float* sums) override {
    exec::add_column_sums(rows, cols, f(y), sums);
  }
  void add_positions(Lane, std::int64_t rows, std::int64_t cols, std::int64_t first,
                     std::int64_t sequence, const void* x, const void* positions,
                     void* out) override {
    for (std::int64_t t = 0; t < rows; ++t) {
      const float* row = f(x) + t * cols;
      if (positions == nullptr) {
        std::copy_n(row, cols, f(out) + t * cols);
      } else {
        exec::add_residual(1, cols, row, f(positions) + (first + t) % sequence * cols, nullptr,
                           f(out) + t * cols);
      }
    }
  }
  void position_gradient(Lane, std::int64_t rows, std::int64_t cols, std::int64_t first,
                         std::int64_t sequence, const void* dy, float* d_positions) override {
    for (std::int64_t t = 0; t < rows; ++t) {
      exec::add_column_sums(1, cols, f(dy) + t * cols, d_positions + (first + t) % sequence * cols);
    }
  }
  void gelu(Lane, std::int64_t count, const void* u, void* g) override {
    exec::gelu(count, f(u), f(g));
  }
  void gelu_backward(Lane, std::int64_t count, const void* dg, const void* u, void* du) override {
    exec::gelu_backward(count, f(dg), f(u), f(du));
  }
  void swiglu(Lane, std::int64_t rows, std::int64_t width, const void* u, void* g) override {
    exec::swiglu(rows, width, f(u), f(g));
  }
  void swiglu_backward(Lane, std::int64_t rows, std::int64_t width, const void* dg, const void* u,
                       void* du) override {
    exec::swiglu_backward(rows, width, f(dg), f(u), f(du));
  }
  void rope(Lane, const AttentionShape& shape, double theta, bool inverse, void* qkv) override {
    exec::rope(shape.tokens, shape.first, shape.sequence, shape.heads + shape.kv_heads,
               shape.head_dim, shape.columns(), theta, inverse, f(qkv));
  }

  void attention(Lane, const AttentionShape& shape, const void* qkv, void* o, float* lse) override {
    exec::attention(shape, f(qkv), f(o), lse);
  }
  void attention_backward(Lane, const AttentionShape& shape, const void* d_o, const void* qkv,
                          const void* o, const float* lse, void* dqkv, float* delta) override {
    exec::attention_backward(shape, f(d_o), f(qkv), f(o), lse, f(dqkv), delta);
  }
  void attention_part(Lane, const AttentionPart& part, const void* qkv, const void* kv, float* sum,
                      float* lse) override {
    exec::attention_part(part, f(qkv), f(kv), sum, lse);
  }
  void attention_part_backward(Lane, const AttentionPart& part, const void* d_o, const void* qkv,
                               const void* kv, const void* o, const float* lse, float* dq,
                               float* dkv, float* delta) override {
    exec::attention_part_backward(part, f(d_o), f(qkv), f(kv), f(o), lse, dq, dkv, delta);
  }
  void copy_columns(Lane, std::int64_t rows, std::int64_t cols, const void* from,
                    std::int64_t from_stride, void* to, std::int64_t to_stride) override {
    for (std::int64_t r = 0; r < rows; ++r) {
      std::copy_n(f(from) + r * from_stride, cols, f(to) + r * to_stride);
    }
  }
  void cast_columns(Lane lane, std::int64_t rows, std::int64_t cols, const float* from, void* to,
                    std::int64_t to_stride) override {
    copy_columns(lane, rows, cols, from, cols, to, to_stride);
  }

  void embed(Lane, std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const void* table,
             const VocabularyShape& shape, void* out) override {
    exec::embed(tokens, h, ids, f(table), shape.first, shape.columns, f(out));
  }
  void embed_backward(Lane, std::int64_t tokens, std::int64_t h, const std::int32_t* ids,
                      const void* dy, const VocabularyShape& shape, std::int32_t* order,
                      float* d_table) override {
    exec::embed_backward(tokens, h, ids, f(dy), shape.first, shape.columns, order, d_table,
                         shape.frozen);
  }
  void row_maxima(Lane, std::int64_t rows, const VocabularyShape& shape, const float* logits,
                  float* maxima) override {
    exec::row_maxima(rows, shape.columns, shape.valid, logits, maxima);
  }
  void row_sums(Lane, std::int64_t rows, const VocabularyShape& shape, const float* logits,
                const float* maxima, const std::int32_t* targets, float* sums) override {
    exec::row_sums(rows, shape.columns, shape.valid, shape.first, logits, maxima, targets, sums);
  }
  void loss_and_gradient(Lane, std::int64_t rows, const VocabularyShape& shape, const float* logits,
                         const float* maxima, const float* sums, const std::int32_t* targets,
                         float scale, void* d_logits, float* loss) override {
    exec::loss_and_gradient(rows, shape.columns, shape.valid, shape.first, logits, maxima, sums,
                            targets, scale, f(d_logits), loss);
  }

 private:
  std::vector<Pages> arenas_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend() {
  return std::make_unique<CpuBackend>();
}

}  // namespace rehearse::exec
