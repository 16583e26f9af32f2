// SPDX-License-Identifier: Apache-2.0
// Kernels that hand every call on: a test overrides those in which it plants a fault.
#pragma once

#include <memory>
#include <span>

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
  void adamw(Lane lane, const AdamwArguments& arguments) override {
    inner_->adamw(lane, arguments);
  }

 protected:
  std::unique_ptr<Kernels> inner_;
};

}  // namespace rehearse::exec
