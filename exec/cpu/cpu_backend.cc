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
#include "exec/cpu/kernels/instruction_set.h"
#include "exec/cpu/kernels/table.h"
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

std::size_t size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(ElementType type) : type_(type) {}
  std::string_view name() const override { return instruction_set(); }
  bool computes_in(ComputeType type) const override {
    return !is_quantized(type) && element_of(type) == type_;
  }

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

 private:
  ElementType type_;
  std::vector<Pages> arenas_;
};

template <class Of>
class CpuKernels final : public Kernels {
 public:
#define KERNEL(name, parameters, arguments)     \
  void name(Lane, SPREAD parameters) override { \
    call_kernel(table_.name, SPREAD arguments); \
  }
#include "exec/backend/kernel_rows.inc"

  void norms(Lane, std::span<const NormRange> ranges, const float* loss, std::int64_t slots,
             double* norms) override {
    std::fill_n(norms, slots, 0.0);
    for (const NormRange& range : ranges) {
      norms[range.slot] += sum_of_squares({range.data, size(range.elements)});
    }
    if (loss != nullptr) norms[slots - 1] = static_cast<double>(*loss);
  }
  void update(Lane, const UpdateArguments& a) override {
    double squares = 0;
    for (std::int64_t k = 0; k + 1 < a.slots; ++k) squares += a.norms[k];
    if (a.loss_scale > 0 && !std::isfinite(squares)) return;
    const double unscale = a.loss_scale > 0 ? 1 / a.loss_scale : 1;
    const double clip =
        static_cast<double>(clip_factor(std::sqrt(squares) * unscale, a.options->clip_norm));
    const auto scale = static_cast<float>(clip * unscale);
    float* whole = a.master != nullptr ? a.master : static_cast<float*>(a.parameter);
    for (const UpdateRange& range : a.ranges) {
      const std::int64_t count = range.end - range.begin;
      const auto of = [&](auto* values) { return std::span(values + range.begin, size(count)); };
      exec::update(a.rule, of(whole), of(a.gradient), of(a.moments[0]),
                   a.moments[1] == nullptr ? std::span<float>() : of(a.moments[1]), *a.options,
                   a.rate, range.decay, a.step, scale);
      if (a.master == nullptr) continue;
      table_.cast(count, a.master + range.begin, static_cast<Of*>(a.parameter) + range.begin);
    }
  }

 private:
  const KernelsOf<Of>& table_ = exec::kernels().of<Of>();
};

}  // namespace

Backend make_cpu_backend(ElementType type) {
  auto device = std::make_unique<CpuDevice>(type);
  if (type == ElementType::BFloat16) {
    return {std::move(device), std::make_unique<CpuKernels<BFloat16>>()};
  }
  if (type == ElementType::Float16) {
    return {std::move(device), std::make_unique<CpuKernels<Float16>>()};
  }
  return {std::move(device), std::make_unique<CpuKernels<float>>()};
}

}  // namespace rehearse::exec
