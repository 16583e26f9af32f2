// SPDX-License-Identifier: Apache-2.0
// Chrome JSON that rehearse wrote -> the trace that it was.
#include <algorithm>
#include <charconv>
#include <limits>
#include <numeric>

#include "viz/import/import_events.h"

namespace rehearse::viz {

TraceString ForeignEvents::text(const std::string& what) {
  const auto [at, fresh] =
      string_ids_.try_emplace(what, static_cast<TraceString>(trace.strings.size()));
  if (fresh) trace.strings.push_back(what);
  return at->second;
}

std::int32_t ForeignEvents::number(std::int32_t text) const {
  const std::string_view digits = texts.view(text);
  std::int32_t value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc{} && end == digits.data() + digits.size() ? value : -1;
}

void ForeignEvents::name(const ForeignEvent& metadata, const std::string& what) {
  if (what.empty()) return;
  const std::string_view kind = texts.view(metadata.name);
  if (kind == "process_name") process_names[metadata.process] = what;
  if (kind == "thread_name") {
    thread_names[static_cast<std::int64_t>(metadata.process) << 32 |
                 static_cast<std::uint32_t>(metadata.thread)] = what;
  }
}

namespace {

// Class -> index; few classes per file, many ops: remember where each hash leads.
class Classes {
 public:
  std::int32_t add(const TraceClass& c) {
    std::uint64_t hash =
        static_cast<std::uint64_t>(c.kind) * 31 + static_cast<std::uint64_t>(c.stage.value);
    for (const std::int64_t part :
         {std::int64_t{c.slot}, std::int64_t{c.segment_begin}, std::int64_t{c.segment_end},
          std::int64_t{c.second_stage.value}, std::int64_t{c.group}, std::int64_t{c.bucket},
          std::int64_t{c.name}, c.bytes, static_cast<std::int64_t>(c.payload),
          std::int64_t{c.slice}}) {
      hash = (hash ^ static_cast<std::uint64_t>(part)) * 0x9e3779b97f4a7c15ULL;
      hash ^= hash >> 29;
    }
    std::vector<std::int32_t>& bin = bins_[hash];
    for (const std::int32_t id : bin) {
      if (all[static_cast<std::size_t>(id)] == c) return id;
    }
    bin.push_back(static_cast<std::int32_t>(all.size()));
    all.push_back(c);
    return bin.back();
  }
  std::vector<TraceClass> all;

 private:
  std::unordered_map<std::uint64_t, std::vector<std::int32_t>> bins_;
};

// Offsets of entries that are sorted by their row (or link): [begin[r], begin[r+1]).
template <class Entry>
std::vector<std::int64_t> offsets(const std::vector<std::pair<std::int32_t, Entry>>& entries,
                                  std::size_t rows) {
  std::vector<std::int64_t> begin(rows + 1);
  for (const auto& [row, entry] : entries) ++begin[static_cast<std::size_t>(row) + 1];
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  return begin;
}

template <class Entry>
bool rows_rise(const std::vector<std::pair<std::int32_t, Entry>>& entries, std::size_t rows) {
  std::int32_t last = 0;
  for (const auto& [row, entry] : entries) {
    if (row < last || row >= static_cast<std::int32_t>(rows)) return false;
    last = row;
  }
  return true;
}

}  // namespace

Result<Trace> build_ours(ForeignEvents& in) {
  Trace trace = std::move(in.trace);
  const std::size_t n = in.ops.size(), rows = in.rows.size();
  std::vector<std::int64_t> row_begin(rows + 1), start(n), end(n), expected, communicating;
  std::vector<std::int32_t> op_class(n), microbatch(n), partner(n), wait_begin{0};
  std::vector<std::uint8_t> level;
  Classes classes;
  std::int64_t first = n == 0 ? 0 : std::numeric_limits<std::int64_t>::max(), last = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const OurOp& op = in.ops[i];
    if (op.id != static_cast<std::int32_t>(i))
      return Error{"op " + std::to_string(i) + " is missing or out of order"};
    if (op.row < 0 || static_cast<std::size_t>(op.row) >= rows ||
        (i > 0 && op.row < in.ops[i - 1].row)) {
      return Error{"op " + std::to_string(i) + ": no such row, or out of order"};
    }
    ++row_begin[static_cast<std::size_t>(op.row) + 1];
    start[i] = op.start;
    end[i] = op.end;
    first = std::min(first, op.start);
    last = std::max(last, op.end);
    op_class[i] = classes.add(op.op_class);
    microbatch[i] = op.microbatch;
    partner[i] = op.partner;
    if (op.cost_level >= 0) level.push_back(static_cast<std::uint8_t>(op.cost_level));
    if (op.expected_start >= 0) expected.push_back(op.expected_start);
    if (op.communicating >= 0) communicating.push_back(op.communicating);
    wait_begin.push_back(wait_begin.back() + op.num_waits);
  }
  std::partial_sum(row_begin.begin(), row_begin.end(), row_begin.begin());
  if (!rows_rise(in.idle, rows) || !rows_rise(in.memory, rows) ||
      !rows_rise(in.loads, in.links.size())) {
    return Error{"bubbles, memory or links out of order"};
  }
  trace.begin = {first};
  trace.end = {last};
  trace.rows = std::move(in.rows);
  trace.row_class = std::move(in.row_class);
  trace.lanes = std::move(in.lanes);
  trace.classes = std::move(classes.all);
  trace.row_begin = std::move(row_begin);
  trace.start_ns = std::move(start);
  trace.end_ns = std::move(end);
  trace.op_class = std::move(op_class);
  trace.microbatch = std::move(microbatch);
  trace.partner = std::move(partner);
  trace.cost_level = std::move(level);
  trace.expected_start_ns = std::move(expected);
  trace.communicating_ns = std::move(communicating);
  if (in.has_waits) {
    trace.wait_begin = std::move(wait_begin);
    trace.waits = std::move(in.waits);
  }
  if (in.has_idle) {
    trace.idle_begin = offsets(in.idle, rows);
    std::vector<IdleSpan> spans;
    for (const auto& [row, span] : in.idle) spans.push_back(span);
    trace.idle = std::move(spans);
  }
  if (!in.memory.empty()) {
    trace.memory_begin = offsets(in.memory, rows);
    std::vector<std::int64_t> times;
    for (const auto& [row, time] : in.memory) times.push_back(time);
    trace.memory_time = std::move(times);
    trace.memory_bytes = std::move(in.memory_bytes);
  }
  if (!in.links.empty()) {
    trace.link_begin = offsets(in.loads, in.links.size());
    trace.links = std::move(in.links);
    std::vector<LinkSample> samples;
    for (const auto& [link, sample] : in.loads) samples.push_back(sample);
    trace.link_samples = std::move(samples);
  }
  return trace;
}

}  // namespace rehearse::viz
