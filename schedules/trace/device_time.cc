// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/device_time.h"

#include <algorithm>
#include <array>
#include <vector>

#include "schedules/trace/step_work.h"

namespace rehearse {
namespace {

// In this order: what of several at once counts.
constexpr std::array kParts{&DeviceTime::products,     &DeviceTime::attention,
                            &DeviceTime::memory_bound, &DeviceTime::unknown,
                            &DeviceTime::collectives,  &DeviceTime::transfers,
                            &DeviceTime::copies};
constexpr std::size_t kProducts = 0, kAttention = 1, kMemoryBound = 2, kUnknown = 3,
                      kCollectives = 4, kTransfers = 5, kCopies = 6;

// A profile with device events has streams for lanes, one without has a host's threads.
bool has_streams(const Trace& trace) {
  return std::ranges::any_of(trace.lanes, [&](const TraceLane& lane) {
    return trace.text(lane.name).starts_with("stream");
  });
}

std::size_t part_of(const Trace& trace, const TraceClass& of, bool streams) {
  switch (traits(of.kind).op_class) {
    case OpClass::Collective:
      return kCollectives;
    case OpClass::Transfer:
      return kTransfers;
    case OpClass::Copy:
      return kCopies;
    case OpClass::Compute:  // a range over kernels, which count themselves
      return kParts.size();
    case OpClass::Local:
    case OpClass::Text:
      break;
  }
  if (!streams) return kUnknown;
  switch (work_of_kernel(trace.text(of.name))) {
    case KernelWork::Product:
      return kProducts;
    case KernelWork::Attention:
      return kAttention;
    case KernelWork::MemoryBound:
      break;
  }
  return kMemoryBound;
}

struct Edge {
  std::int64_t time;
  std::size_t part;
  int change;  // of how many are under way
};

}  // namespace

DeviceTime device_time(const Trace& trace, RankClass row, std::int64_t begin, std::int64_t end) {
  std::vector<std::size_t> part(trace.classes.size());
  const bool streams = has_streams(trace);
  for (std::size_t c = 0; c < part.size(); ++c) part[c] = part_of(trace, trace.classes[c], streams);
  std::vector<Edge> edges;
  for (std::int64_t i = trace.row_begin[row.index()]; i < trace.row_begin[row.index() + 1]; ++i) {
    const auto op = static_cast<std::size_t>(i);
    const std::size_t of = part[static_cast<std::size_t>(trace.op_class[op])];
    const std::int64_t from = std::max(trace.start_ns[op], begin);
    const std::int64_t until = std::min(trace.end_ns[op], end);
    if (of == kParts.size() || from >= until) continue;
    edges.push_back({from, of, 1});
    edges.push_back({until, of, -1});
  }
  std::ranges::sort(edges, {}, &Edge::time);
  DeviceTime out;
  std::array<int, kParts.size()> under_way{};
  std::int64_t now = begin;
  for (const Edge& edge : edges) {
    const auto first = std::ranges::find_if(under_way, [](int count) { return count > 0; });
    (first == under_way.end() ? out.nothing
                              : out.*kParts[static_cast<std::size_t>(first - under_way.begin())]) +=
        edge.time - now;
    now = edge.time;
    under_way[edge.part] += edge.change;
  }
  out.nothing += std::max<std::int64_t>(end - now, 0);
  return out;
}

}  // namespace rehearse
