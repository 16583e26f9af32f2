// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/trace.h"

#include <algorithm>
#include <array>
#include <limits>

#include "schedules/ir/payload.h"
#include "schedules/ir/placed_recompute.h"
#include "schedules/ir/text.h"
#include "schedules/trace/kind_name.h"
#include "schedules/trace/trace_inside.h"

namespace rehearse {
namespace {

// Texts that classes refer to, each once, in order of first use.
class Strings {
 public:
  explicit Strings(std::vector<std::string>& all) : all_(all) {}
  TraceString add(std::string_view text) {
    const auto found = std::find(all_.begin(), all_.end(), text);
    if (found != all_.end()) return static_cast<TraceString>(found - all_.begin());
    all_.emplace_back(text);
    return static_cast<TraceString>(all_.size()) - 1;
  }

 private:
  std::vector<std::string>& all_;
};

std::uint64_t hash_of(const TraceClass& c) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  const auto add = [&hash](std::int64_t number) {
    hash = (hash ^ static_cast<std::uint64_t>(number)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
  };
  add((static_cast<std::int64_t>(c.kind) << 32) | (static_cast<std::int64_t>(c.stream) << 24) |
      (static_cast<std::int64_t>(c.payload) << 16) | static_cast<std::uint8_t>(c.slice));
  add((static_cast<std::int64_t>(c.slot) << 32) |
      (static_cast<std::int64_t>(static_cast<std::uint16_t>(c.segment_begin)) << 16) |
      static_cast<std::uint16_t>(c.segment_end));
  add((static_cast<std::int64_t>(c.first_kind) << 16) |
      (static_cast<std::int64_t>(c.second_kind) << 8) | static_cast<std::uint8_t>(c.second_slice));
  add((static_cast<std::int64_t>(c.stage.value) << 32) ^ c.second_stage.value);
  add((static_cast<std::int64_t>(c.group) << 32) ^ c.bucket);
  add(c.bytes);
  return hash;
}

// Class -> index, by open addressing; indices in order of first use, so the result is one.
class ClassTable {
 public:
  std::int32_t add(const TraceClass& c) {
    if (4 * (classes.size() + 1) > 3 * table_.size()) grow();
    std::size_t at = hash_of(c) & (table_.size() - 1);
    while (table_[at] >= 0) {
      if (classes[static_cast<std::size_t>(table_[at])] == c) return table_[at];
      at = (at + 1) & (table_.size() - 1);
    }
    table_[at] = static_cast<std::int32_t>(classes.size());
    classes.push_back(c);
    return table_[at];
  }
  std::vector<TraceClass> classes;

 private:
  void grow() {
    table_.assign(std::max<std::size_t>(64, 2 * table_.size()), -1);
    for (std::size_t i = 0; i < classes.size(); ++i) {
      std::size_t at = hash_of(classes[i]) & (table_.size() - 1);
      while (table_[at] >= 0) at = (at + 1) & (table_.size() - 1);
      table_[at] = static_cast<std::int32_t>(i);
    }
  }
  std::vector<std::int32_t> table_;
};

// Which lane of its row each op gets: one per stream in use, and one more for each further op of
// that stream that runs at the same time.
struct Slots {
  struct Lane {
    Stream stream{};
    std::int32_t depth = 0;
  };
  std::vector<Lane> lanes;          // by stream, then depth
  std::vector<std::int16_t> of_op;  // index into lanes
};

Slots assign_slots(const Schedule& schedule, std::span<const Nanoseconds> start,
                   std::span<const Nanoseconds> end) {
  Slots slots;
  std::vector<std::int16_t> depth(schedule.ops.size());
  std::array<std::int32_t, kNumStreams> depths{};
  depths[0] = 1;                                            // every row shows its compute lane
  std::array<std::vector<std::int64_t>, kNumStreams> last;  // end of the last op per depth
  for (std::int32_t row = 0; row < schedule.num_rows(); ++row) {
    for (auto& ends : last) ends.clear();
    for (std::size_t i = schedule.first_op({row}); i < schedule.first_op({row + 1}); ++i) {
      const auto stream = static_cast<std::size_t>(schedule.ops[i].stream);
      auto& ends = last[stream];
      std::size_t d = 0;
      while (d < ends.size() && ends[d] > start[i].value) ++d;
      if (d == ends.size()) ends.push_back(0);
      ends[d] = end[i].value;
      depth[i] = static_cast<std::int16_t>(d);
      depths[stream] = std::max(depths[stream], static_cast<std::int32_t>(ends.size()));
    }
  }
  std::array<std::int32_t, kNumStreams> first{};
  for (std::size_t s = 0; s < kNumStreams; ++s) {
    first[s] = static_cast<std::int32_t>(slots.lanes.size());
    for (std::int32_t d = 0; d < depths[s]; ++d) {
      slots.lanes.push_back({.stream = static_cast<Stream>(s), .depth = d});
    }
  }
  slots.of_op.resize(depth.size());
  for (std::size_t i = 0; i < depth.size(); ++i) {
    const auto stream = static_cast<std::size_t>(schedule.ops[i].stream);
    slots.of_op[i] = static_cast<std::int16_t>(first[stream] + depth[i]);
  }
  return slots;
}

TraceClass class_for(const Schedule& schedule, const PlacedRecompute& placed, OpId id,
                     std::int16_t slot, std::span<const TraceString> groups,
                     std::span<const TraceString> buckets) {
  const Op& op = schedule.ops[id.index()];
  TraceClass c{.kind = op.kind,
               .stream = op.stream,
               .payload = op.payload,
               .slice = op.slice,
               .slot = slot,
               .segment_begin = op.segment_begin,
               .segment_end = op.segment_end,
               .stage = op.stage};
  if (op.group && op.group.index() < groups.size()) c.group = groups[op.group.index()];
  if (op.bucket && op.bucket.index() < buckets.size()) c.bucket = buckets[op.bucket.index()];
  if (op.kind == OpKind::Overlap && op.child >= 0) {
    const Op& first = schedule.children[static_cast<std::size_t>(op.child)];
    const Op& second = schedule.children[static_cast<std::size_t>(op.child) + 1];
    c.first_kind = first.kind;
    c.second_kind = second.kind;
    c.stage = first.stage;
    c.second_stage = second.stage;
    c.slice = first.slice;
    c.second_slice = second.slice;
    c.apart = placed.of(second);
  } else if (is_backward(op.kind) || op.kind == OpKind::WeightGradient) {
    c.apart = placed.of(op);
  }
  c.bytes = payload_of(schedule, id).bytes();
  return c;
}

std::vector<TraceRow> rows_of(const Schedule& schedule) {
  std::vector<TraceRow> rows;
  for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
    TraceRow row{.position = schedule.position_of({r})};
    if (!schedule.rows.empty()) {
      row.multiplicity = schedule.rows[static_cast<std::size_t>(r)].multiplicity;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace

RankClass Trace::row_of(OpId op) const {
  const auto after = std::upper_bound(row_begin.begin(), row_begin.end(), op.value);
  return {static_cast<std::int32_t>(after - row_begin.begin()) - 1};
}

std::string_view stream_name(Stream stream) {
  static constexpr std::array<std::string_view, kNumStreams> kNames{"compute", "p2p", "dp", "h2d",
                                                                    "d2h"};
  return kNames[static_cast<std::size_t>(stream)];
}

std::string kind_name(OpKind kind, Payload payload) {
  return kind_text(kind, payload);
}

std::string op_name(const Trace& trace, OpId id) {
  const TraceClass& c = trace.class_of(id);
  if (c.name >= 0) return std::string(trace.text(c.name));
  Op op{.kind = c.kind,
        .payload = c.payload,
        .slice = c.slice,
        .stage = c.stage,
        .microbatch = {trace.microbatch[id.index()]},
        .segment_begin = c.segment_begin,
        .segment_end = c.segment_end};
  if (c.kind == OpKind::Overlap && c.second_stage) {
    op.kind = c.first_kind;
    const Op second{.kind = c.second_kind,
                    .slice = c.second_slice,
                    .stage = c.second_stage,
                    .microbatch = {trace.partner[id.index()]}};
    return '(' + to_text(op) + ';' + to_text(second) + ')' + std::string(traits(c.kind).name);
  }
  std::string text = to_text(op);
  if (c.bucket >= 0) text.append(" ").append(trace.text(c.bucket));
  // Every plan brings its batch in and its loss out, whether it offloads anything or not.
  const bool of_step = c.bucket < 0 && !c.stage;
  if (of_step && c.kind == OpKind::Fetch) text += " tokens";
  if (of_step && c.kind == OpKind::Offload) text += " metrics";
  return text;
}

std::string row_name(const Trace& trace, RankClass row) {
  const TraceRow& info = trace.rows[row.index()];
  if (info.name >= 0) return std::string(trace.text(info.name));
  std::string name = info.first_rank ? "rank " + std::to_string(info.first_rank.value)
                     : info.position ? "position " + std::to_string(info.position.value)
                                     : "row " + std::to_string(row.value);
  if (info.multiplicity > 1) name += " (x" + std::to_string(info.multiplicity) + ")";
  return name;
}

std::string lane_name(const Trace& trace, std::int32_t lane) {
  const TraceLane& info = trace.lanes[static_cast<std::size_t>(lane)];
  return std::string(info.name >= 0 ? trace.text(info.name) : stream_name(info.stream));
}

Trace make_trace(const Schedule& schedule, std::span<const Nanoseconds> start,
                 std::span<const Nanoseconds> end, TraceOptions options) {
  Trace trace;
  trace.label = options.label;
  trace.schedule_hash =
      options.schedule_hash.empty() ? content_hash(schedule) : std::move(options.schedule_hash);
  trace.row_class = std::move(options.row_class);
  trace.schedule_name = schedule.name;
  trace.title = std::move(options.title);
  trace.caption = std::move(options.caption);
  trace.microbatches = schedule.microbatches;
  trace.rows = options.rows.empty() ? rows_of(schedule) : std::move(options.rows);
  trace.row_begin = std::vector<std::int64_t>(schedule.row_begin.begin(), schedule.row_begin.end());

  Strings strings(trace.strings);
  std::vector<TraceString> groups, buckets;
  for (const Group& group : schedule.groups)
    groups.push_back(strings.add(std::string(group.name())));
  for (const Bucket& bucket : schedule.buckets) buckets.push_back(strings.add(bucket.name));

  const Slots slots = assign_slots(schedule, start, end);
  trace.slots = static_cast<std::int32_t>(slots.lanes.size());
  std::vector<TraceLane> lanes;
  for (std::int32_t row = 0; row < schedule.num_rows(); ++row) {
    for (const Slots::Lane& lane : slots.lanes) {
      TraceLane info{.stream = lane.stream};
      if (lane.depth > 0) {
        info.name = strings.add(std::string(stream_name(lane.stream)) + ' ' +
                                std::to_string(lane.depth + 1));
      }
      lanes.push_back(info);
    }
  }
  trace.lanes = std::move(lanes);

  const std::size_t n = schedule.ops.size();
  std::vector<std::int64_t> starts(n), ends(n);
  std::vector<std::int32_t> op_class(n), microbatch(n), partner(n);
  ClassTable classes;
  const PlacedRecompute placed(schedule);
  std::int64_t first = n == 0 ? 0 : std::numeric_limits<std::int64_t>::max(), last = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const OpId id{static_cast<std::int32_t>(i)};
    const Op& op = schedule.ops[i];
    starts[i] = start[i].value;
    ends[i] = end[i].value;
    first = std::min(first, starts[i]);
    last = std::max(last, ends[i]);
    op_class[i] = classes.add(class_for(schedule, placed, id, slots.of_op[i], groups, buckets));
    microbatch[i] = op.microbatch.value;
    partner[i] = op.match.value;
    if (op.kind == OpKind::Overlap && op.child >= 0) {
      const auto child = static_cast<std::size_t>(op.child);
      microbatch[i] = schedule.children[child].microbatch.value;
      partner[i] = schedule.children[child + 1].microbatch.value;
    }
  }
  trace.begin = {first};
  trace.end = {last};
  trace.classes = std::move(classes.classes);
  trace.start_ns = std::move(starts);
  trace.end_ns = std::move(ends);
  trace.op_class = std::move(op_class);
  trace.microbatch = std::move(microbatch);
  trace.partner = std::move(partner);

  if (options.waits && schedule.wait_begin.size() == n + 1) {
    trace.wait_begin = std::vector<std::int32_t>(schedule.wait_begin);
    std::vector<std::int32_t> waits;
    waits.reserve(schedule.waits.size());
    for (const OpId wait : schedule.waits) waits.push_back(wait.value);
    trace.waits = std::move(waits);
  }
  if (schedule.operand_begin.size() == n + 1 &&
      schedule.num_ops() <= options.most_ops_with_operands)
    add_operands(trace, schedule);
  return trace;
}

}  // namespace rehearse
