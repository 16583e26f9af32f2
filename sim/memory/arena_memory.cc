// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/arena_memory.h"

#include <algorithm>
#include <numeric>

#include "schedules/body/sizes.h"
#include "schedules/trace/memory_part.h"

namespace rehearse::sim {

std::size_t part_of(const Value& value) {
  return memory_part(value.kind, value.persistent);
}

std::vector<std::array<std::int64_t, kNumAllocatedParts>> alive_bytes(const Schedule& s,
                                                                      RankClass row) {
  const std::int32_t first = s.row_begin[row.index()], last = s.row_begin[row.index() + 1];
  std::vector<std::array<std::int64_t, kNumAllocatedParts>> alive(
      static_cast<std::size_t>(last - first) + 1, std::array<std::int64_t, kNumAllocatedParts>{});
  for (const Value& value : s.values) {
    if (value.row != row || value.home != Home::Device) continue;
    const std::size_t part = part_of(value);
    const std::int64_t bytes = aligned(value.bytes.value);
    alive[static_cast<std::size_t>(value.define ? value.define.value - first : 0)][part] += bytes;
    if (value.hold_until) {
      alive[static_cast<std::size_t>(value.hold_until.value - first) + 1][part] -= bytes;
    }
  }
  for (std::size_t i = 1; i < alive.size(); ++i) {
    for (std::size_t k = 0; k < kNumAllocatedParts; ++k) alive[i][k] += alive[i - 1][k];
  }
  alive.pop_back();
  return alive;
}

void add_arena_memory(Trace& trace, const Schedule& s, std::span<const Nanoseconds> start) {
  for (const std::string_view name : kAllocatedParts) trace.memory_parts.emplace_back(name);
  std::vector<std::vector<std::array<std::int64_t, kNumAllocatedParts>>> alive_of;  // by row
  for (std::int32_t r = 0; r < s.num_rows(); ++r) alive_of.push_back(alive_bytes(s, RankClass{r}));
  std::vector<std::int64_t> begin{0}, time, bytes;
  for (std::size_t r = 0; r < trace.rows.size(); ++r) {
    const auto& alive =
        alive_of[trace.row_class.empty() ? r : static_cast<std::size_t>(trace.row_class[r])];
    const auto first = static_cast<std::size_t>(trace.row_begin[r]);
    std::int64_t at = trace.begin.value;
    for (std::size_t i = 0; i < alive.size(); ++i) {
      at = std::max(at, start[first + i].value);
      if (i > 0 && alive[i] == alive[i - 1]) continue;
      time.push_back(at);
      bytes.insert(bytes.end(), alive[i].begin(), alive[i].end());
    }
    begin.push_back(static_cast<std::int64_t>(time.size()));
  }
  trace.memory_begin = std::move(begin);
  trace.memory_time = std::move(time);
  trace.memory_bytes = std::move(bytes);
}

MemoryReport arena_memory(const Schedule& s, const Cluster& cluster, Bytes communicators,
                          Bytes context) {
  MemoryReport report;
  report.capacity = cluster.capacity().value;
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    const auto alive = alive_bytes(s, RankClass{r});
    const auto total = [](const auto& parts) {
      return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
    };
    const auto peak =
        std::max_element(alive.begin(), alive.end(),
                         [&](const auto& a, const auto& b) { return total(a) < total(b); });
    RankMemory rank{.row = {r}};
    rank.at_op = {s.row_begin[static_cast<std::size_t>(r)] +
                  static_cast<std::int32_t>(peak - alive.begin())};
    rank.parts = {.parameters = (*peak)[0],
                  .gradients = (*peak)[1],
                  .optimizer = (*peak)[2],
                  .activations = (*peak)[3],
                  .buffers = (*peak)[4],
                  .workspace = (*peak)[5],
                  .communicators = communicators.value,
                  .context = context.value};
    rank.peak_allocated = rank.peak_in_steps = total(*peak);
    rank.peak_reserved = s.arena_bytes[static_cast<std::size_t>(r)].value;
    rank.peak_device = rank.peak_reserved + communicators.value + context.value;
    rank.steady_allocated = total(alive.back());
    rank.fits = rank.peak_device <= report.capacity;
    report.fits = report.fits && rank.fits;
    report.peak_allocated = std::max(report.peak_allocated, rank.peak_allocated);
    report.peak_reserved = std::max(report.peak_reserved, rank.peak_reserved);
    report.peak_device = std::max(report.peak_device, rank.peak_device);
    report.steady_allocated = std::max(report.steady_allocated, rank.steady_allocated);
    report.ranks.push_back(rank);
  }
  report.even_peak_device = report.peak_device;
  if (report.fits && report.near_capacity()) {
    report.bad_day = {BadDayCause::AllocatorMargin, report.peak_device};
  }
  return report;
}

}  // namespace rehearse::sim
