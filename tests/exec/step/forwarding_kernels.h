// SPDX-License-Identifier: Apache-2.0
// Kernels that hand every call on: a test overrides those in which it plants a fault.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "exec/backend/backend.h"

namespace rehearse::exec {

class Forwarding : public Kernels {
 public:
  explicit Forwarding(std::unique_ptr<Kernels> inner) : inner_(std::move(inner)) {}
#define KERNEL(name, parameters, arguments)          \
  void name(Lane lane, SPREAD parameters) override { \
    inner_->name(lane, SPREAD arguments);            \
  }
#include "exec/backend/kernel_rows.inc"
  void norms(Lane lane, std::span<const NormRange> ranges, const float* loss, std::int64_t slots,
             double* norms) override {
    inner_->norms(lane, ranges, loss, slots, norms);
  }
  void update(Lane lane, const UpdateArguments& arguments) override {
    inner_->update(lane, arguments);
  }

 protected:
  std::unique_ptr<Kernels> inner_;
};

// Routers read what are no numbers: so are their scores, and all tokens choose the same experts.
class NoNumbers final : public Forwarding {
 public:
  using Forwarding::Forwarding;
  void router_logits(Lane lane, std::int64_t m, std::int64_t n, std::int64_t k, const void*,
                     const void* w, const void* bias, float* y) override {
    static const std::vector<float> none(1 << 16, std::numeric_limits<float>::quiet_NaN());
    inner_->router_logits(lane, m, n, k, none.data(), w, bias, y);
  }
};
inline Backend without_numbers(Backend made) {
  made.kernels = std::make_unique<NoNumbers>(std::move(made.kernels));
  return made;
}

}  // namespace rehearse::exec
