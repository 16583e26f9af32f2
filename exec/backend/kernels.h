// SPDX-License-Identifier: Apache-2.0
// The arithmetic of one node at a time, on one lane: a call for each row of kernel_rows.inc, which
// has their shapes, and the end of a step.
//
// Activations, their gradients and full parameters have the device's compute type (fp32, bf16 or
// fp16) and are passed as void*; statistics, loss, weight gradients, master weights and moments are
// fp32, norms fp64.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "exec/backend/exchange.h"
#include "exec/backend/shapes.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// What activations and full parameters are where a plan computes in `type`.
constexpr ElementType element_of(ComputeType type) {
  return type == ComputeType::Fp32   ? ElementType::Float32
         : type == ComputeType::Fp16 ? ElementType::Float16
                                     : ElementType::BFloat16;
}

// An optimizer's step over parts of one flat shard.
struct UpdateRange {
  std::int64_t begin = 0, end = 0;  // elements of the shard
  double decay = 0;
};
struct UpdateArguments {
  UpdateRule rule = UpdateRule::AdamW;
  const float* gradient = nullptr;  // (count)
  void* parameter = nullptr;        // (count), compute type; its own master in fp32
  float* master = nullptr;          // (count); nullptr: the parameter is fp32
  std::array<float*, 2> moments{};  // (count) each; nullptr: the optimizer has one
  std::span<const UpdateRange> ranges;
  const double* norms = nullptr;  // (slots) sums of squares, on the device
  std::int64_t slots = 0;
  const TrainOptions* options = nullptr;
  double rate = 0;
  std::int64_t step = 0;  // updates before this one: 0, 1, ...
  // By which gradients and norms are too large. Then the update is left out where the norms are not
  // finite: all ranks have the same. 0: they carry nothing, and are finite.
  double loss_scale = 0;
};

// One range of a gradient and the slot that takes the sum of its squares.
struct NormRange {
  const float* data = nullptr;
  std::int64_t elements = 0;
  std::int32_t slot = 0;
};

class Kernels {
 public:
  using Element = void;
  virtual ~Kernels() = default;

#define KERNEL(name, parameters, arguments) virtual void name(Lane lane, SPREAD parameters) = 0;
#include "exec/backend/kernel_rows.inc"

  // norms(slots): zeroed, then the ranges' sums of squares; the last slot becomes *loss if given
  virtual void norms(Lane, std::span<const NormRange>, const float* loss, std::int64_t slots,
                     double* norms) = 0;
  virtual void update(Lane, const UpdateArguments&) = 0;

  // --- ways of computing the same, of which the fastest is taken; before the first step -----------
  // Kernels that try them where these would compute, and write nothing that is kept: what a call
  // would write may hold anything. `arena`(bytes) is the lane's rank's: they fill it with numbers,
  // and with zeros when they go. Null: there is nothing to choose.
  virtual std::unique_ptr<Kernels> trials(Lane, std::byte* /*arena*/, std::int64_t /*bytes*/) {
    return nullptr;
  }
  // What was chosen: a line `what=way` each. Of lines that another process gave, those ways are
  // taken where they can be.
  virtual std::string choices() const {
    return {};
  }
  virtual void take_choices(const std::string&) {}
};

}  // namespace rehearse::exec
