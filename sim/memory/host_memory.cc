// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/host_memory.h"

#include <algorithm>

namespace rehearse::sim {

namespace {

// The most that each row holds in one home, whose arenas the schedule has planned, or not.
std::vector<std::int64_t> most_of(const Schedule& s, Home home, const std::vector<Bytes>& planned) {
  std::vector<std::int64_t> most(static_cast<std::size_t>(s.num_rows()), 0);
  if (!planned.empty()) {
    std::ranges::transform(planned, most.begin(), &Bytes::value);
    return most;
  }
  // First and last op of every value there; state that outlives the step is there all along.
  struct Life {
    std::int32_t first = -1, last = -1;
  };
  std::vector<Life> lives(s.values.size());
  for (std::int32_t op = 0; op < s.num_ops(); ++op) {
    for (const Operand& operand : s.operands_of({op})) {
      Life& life = lives[operand.value.index()];
      if (life.first < 0) life.first = op;
      life.last = op;
    }
  }
  std::vector<std::int64_t> change(s.ops.size() + 1, 0);
  for (std::size_t v = 0; v < s.values.size(); ++v) {
    const Value& value = s.values[v];
    const bool here = home == Home::Host ? in_host_arena(value) : value.home == home;
    if (!here || lives[v].first < 0) continue;
    const std::size_t begin = s.first_op(value.row), end = s.first_op({value.row.value + 1});
    change[value.persistent ? begin : static_cast<std::size_t>(lives[v].first)] +=
        value.bytes.value;
    change[value.persistent ? end : static_cast<std::size_t>(lives[v].last) + 1] -=
        value.bytes.value;
  }
  std::int64_t now = 0;
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    for (std::size_t op = s.first_op(row); op < s.first_op({row.value + 1}); ++op) {
      now += change[op];
      most[row.index()] = std::max(most[row.index()], now);
    }
  }
  return most;
}

}  // namespace

std::vector<std::int64_t> host_bytes(const Schedule& s) {
  return most_of(s, Home::Host, s.host_bytes);
}
std::vector<std::int64_t> nvme_bytes(const Schedule& s) {
  return most_of(s, Home::Nvme, s.nvme_bytes);
}

std::int64_t swap_buffers(const Plan& plan, std::int64_t updated) {
  if (plan.offload_to != OffloadTarget::Nvme || !plan.runtime.performer().updates_on_host) return 0;
  // Defaults of deepspeedai/DeepSpeed edaa7221, deepspeed/runtime/zero: of the optimizer
  // `buffer_count` arrays in fp32 of the largest part of `sub_group_size` elements, of parameters
  // as many of `buffer_size` elements (offload_config.py, config.py). A part on its way in or out
  // has buffers of its own.
  const RuntimeTraits& runtime = plan.runtime;
  const std::int64_t parts = 1 + (reads_ahead(runtime.swap_pipeline) ? 1 : 0) +
                             (writes_behind(runtime.swap_pipeline) ? 1 : 0);
  constexpr std::int64_t kOptimizerBuffers = 4;
  constexpr std::int64_t kParameterBuffers = 5, kParameterBuffer = 100'000'000;
  const std::int64_t largest_parts = std::min(updated, parts * std::int64_t{runtime.swap_elements});
  const std::int64_t optimizer = plan.offload.optimizer ? 4 * kOptimizerBuffers * largest_parts : 0;
  const std::int64_t element = plan.precision.compute == ComputeType::Fp32 ? 4 : 2;
  return optimizer + (plan.offload.parameters ? element * kParameterBuffers * kParameterBuffer : 0);
}

}  // namespace rehearse::sim
