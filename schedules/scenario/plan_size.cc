// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/plan_size.h"
#include "schedules/scenario/plan_shape.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "schedules/order/registry.h"

namespace rehearse {
namespace {

// Two microseconds per op from order to report on one core (bench/search_bench.cc): a minute.
constexpr double kMostLowered = 1 << 25;
// Bytes per op that all columns, costs and times take together at their peak, as measured on 1F1B
// and FSDP of 0.7 to 0.9 M ops (285 to 355), rounded up.
constexpr double kBytesPerOp = 400;

// [B] that this process may have; 0: not known.
double memory_there() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  double there = pages > 0 && size > 0 ? static_cast<double>(pages) * static_cast<double>(size) : 0;
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const auto most = static_cast<double>(limit.rlim_cur);
    there = there > 0 ? std::min(there, most) : most;
  }
  return there;
}

std::string rounded(double value, double unit) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value / unit);
  return text;
}

}  // namespace

double lowered_ops(const Transformer& model, const Plan& plan) {
  const ScheduleInfo* info = find_schedule(name_of_order(plan));
  const double p = plan.pipeline_parallel, v = plan.virtual_stages,
               segments = static_cast<double>(model.layers) + 2;
  const double chunks = std::max(p * v, static_cast<double>(plan.stage_layers.size()));
  const double passes = info != nullptr && info->splits_backward ? 3 : 2;
  double per_microbatch = passes * chunks + 4 * (chunks - 1);
  // Alone, each layer is gathered twice, computed in parts and its gradients reduced; under a
  // pipeline that happens once per step.
  if (plan.zero_stage == 3 && plan.pipeline_parallel == 1) per_microbatch += 6 * segments;
  if (plan.zero_stage == 2 && plan.overlap_gradient_reduce) per_microbatch += 2 * segments;
  if (plan.offload == OffloadMode::Activations) per_microbatch += 4 * segments;
  const double m = static_cast<double>(plan.global_batch) /
                   (static_cast<double>(plan.data_parallel) * plan.micro_batch);
  return m * per_microbatch * plan.sequence_slices;
}

Result<> check_lowered_size(const Transformer& model, const Plan& plan) {
  const double ops = lowered_ops(model, plan);
  const std::string what =
      "plan.global_batch: " +
      std::to_string(plan.global_batch / (std::int64_t{plan.data_parallel} * plan.micro_batch)) +
      " micro-batches make a schedule of about " + rounded(ops, 1e6) + " million ops";
  if (ops > kMostLowered) {
    return Error{what + ", more than the " + rounded(kMostLowered, 1e6) +
                 " that are simulated and run"};
  }
  const double bytes = ops * kBytesPerOp, there = memory_there();
  if (there > 0 && bytes > there) {
    return Error{what + ", which take " + rounded(bytes, 1e9) + " GB: this machine gives " +
                 rounded(there, 1e9)};
  }
  return {};
}

}  // namespace rehearse
