// SPDX-License-Identifier: Apache-2.0
// The plan as text, and what follows from it without a file.
#include "schedules/scenario/plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "schedules/base/json_reader.h"
#include "schedules/order/registry.h"
#include "schedules/runtime/trait_rows.h"
#include "schedules/scenario/keys/plan_rows.h"
#include "schedules/scenario/reader/plan_reader.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {
namespace {

// Writes an object line by line.
class ObjectText {
 public:
  ObjectText(int indent, int depth)
      : newline_(indent > 0 ? "\n" + std::string(static_cast<std::size_t>(indent * depth), ' ')
                            : ""),
        end_(indent > 0 ? "\n" + std::string(static_cast<std::size_t>(indent * (depth - 1)), ' ')
                        : ""),
        separator_(indent > 0 ? "," : ", ") {}

  void raw(std::string_view key, const std::string& value) {
    text_ += (text_.empty() ? "{" : separator_) + newline_ + json_quoted(key) + ": " + value;
  }
  std::string take() { return text_ + end_ + "}"; }

 private:
  std::string text_, newline_, end_, separator_;
};

}  // namespace

double Plan::document_scale() const {
  if (document_maximum <= 0) return document_length;
  // mean = l (1 - e^-(M/l)), which grows with l, to M.
  const auto most = static_cast<double>(document_maximum);
  double low = document_length, high = 1e3 * most;  // beyond, all are as long as the longest
  for (int i = 0; i < 60; ++i) {
    const double middle = std::sqrt(low * high);
    (-middle * std::expm1(-most / middle) < document_length ? low : high) = middle;
  }
  return low;
}

// Two tokens t apart lie in one document with the probability
// R(t) = (1/mean) * integral from t on of P(length > u) du = (e^-(t/l) - q) / (1 - q), q =
// e^-(M/l), zero from M on; of all pairs of s tokens the share is 2/s^2 * integral of (s - t) R(t)
// dt. Without M, with x = s / l: 2 (x - 1 + e^-x) / x^2.
double Plan::attention_share() const {
  if (document_length <= 0) return 1;
  const double s = static_cast<double>(sequence_length), l = document_scale();
  if (s < 1e-3 * l && document_maximum <= 0) return 1;
  const double most =
      document_maximum > 0 ? std::min<double>(s, static_cast<double>(document_maximum)) : s;
  const double q = document_maximum > 0 ? std::exp(-static_cast<double>(document_maximum) / l) : 0;
  const double inside = l * s - l * (s - most) * std::exp(-most / l) +
                        l * l * std::expm1(-most / l) - q * (s * most - most * most / 2);
  return 2 * inside / (s * s * (1 - q));
}

std::string plan_json(const Plan& plan, int indent, std::span<const PlanRow> rows) {
  ObjectText object(indent, 1);
  for (const PlanRow& row : rows) {
    const std::string value = value_json(row, plan);
    if (!value.empty()) object.raw(row.key.name, value);
  }
  for (const TraitRow& row : kTraitRows) {
    if (row.of_plan) object.raw(row.key.name, trait_json(row, plan.runtime));
  }
  return object.take();
}

std::string plan_json(const Plan& plan, int indent) {
  return plan_json(plan, indent, plan_rows());
}

// Megatron-LM's: max(40,000,000, 1,000,000 x d) gradients
// (megatron/core/distributed/distributed_data_parallel.py).
std::int64_t default_bucket_bytes(const Plan& plan) {
  const std::int64_t elements =
      std::max<std::int64_t>(40'000'000, std::int64_t{1'000'000} * plan.data_parallel);
  const bool overlaps = plan.overlap_gradient_reduce && !plan.has_parameter_server();
  return overlaps ? elements * plan.precision.gradients : 0;
}

std::vector<std::int32_t> micro_batch_candidates(const Plan& plan) {
  constexpr std::int64_t kLargest = 1 << 24;  // what the key can say
  const std::int64_t samples = plan.global_batch / plan.data_parallel;
  std::vector<std::int32_t> small, large;
  for (std::int64_t i = 1; i * i <= samples; ++i) {
    if (samples % i != 0) continue;
    if (i <= kLargest) small.push_back(static_cast<std::int32_t>(i));
    const std::int64_t other = samples / i;
    if (other != i && other <= kLargest) large.push_back(static_cast<std::int32_t>(other));
  }
  small.insert(small.end(), large.rbegin(), large.rend());
  const std::int32_t rows = std::max(1, plan.tensor_parallel_2d.rows);
  std::erase_if(small, [&](std::int32_t size) { return size % rows != 0; });
  return small;
}

Result<Plan> choose_micro_batch(const Plan& plan, std::int32_t micro_batch) {
  constexpr std::int64_t kMaxOps = 1LL << 28;  // of a schedule, after folding
  Plan chosen = plan;
  chosen.micro_batch = micro_batch;
  chosen.micro_batch_auto = false;
  const std::int64_t m = plan.global_batch / (std::int64_t{plan.data_parallel} * micro_batch);
  // Per micro-batch each chunk runs a forward and a backward, and each boundary between two has two
  // sends and two receives.
  const std::int64_t chunks = std::int64_t{plan.pipeline_parallel} * plan.virtual_stages;
  const std::int64_t per_microbatch = (2 * chunks + 4 * (chunks - 1)) * plan.sequence_slices;
  if (m > kMaxOps / per_microbatch) {
    return Error{"global_batch: " + std::to_string(m) +
                 " micro-batches make a schedule of more than 2^28 ops"};
  }
  const ScheduleInfo* info = find_schedule(plan.schedule);
  if (info == nullptr || plan.pipeline_parallel == 1) {
    chosen.microbatch_group_size = 0;
    return chosen;
  }
  Result<ScheduleShape> shape = resolve_shape(*info, {.positions = plan.pipeline_parallel,
                                                      .microbatches = static_cast<std::int32_t>(m),
                                                      .chunks = plan.virtual_stages,
                                                      .group_size = plan.microbatch_group_size,
                                                      .extra_warmup = plan.extra_warmup,
                                                      .slices = plan.sequence_slices,
                                                      .memory_limit = plan.memory_limit});
  if (shape) {
    chosen.microbatch_group_size = info->grouped ? shape.value().group_size : 0;
    return chosen;
  }
  // The registry names what the command line calls it; a plan has other words.
  const std::array<std::pair<std::string_view, PlanField>, 5> words{{
      {"stages", &Plan::pipeline_parallel},
      {"microbatches", &Plan::global_batch},
      {"chunks", &Plan::virtual_stages},
      {"group_size", &Plan::microbatch_group_size},
      {"slices", &Plan::sequence_slices},
  }};
  std::string what = shape.error().message;
  for (const auto& [word, key] : words) {
    if (!what.starts_with(std::string(word) + ": ")) continue;
    what.replace(0, word.size(), key_of(key));
    break;
  }
  return Error{what};
}

}  // namespace rehearse
