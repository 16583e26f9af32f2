// SPDX-License-Identifier: Apache-2.0
#include "schedules/trace/trace_inside.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "schedules/ir/listing.h"
#include "schedules/model/layer_mix.h"
#include "schedules/ranks/group_key.h"
#include "schedules/scenario/mesh.h"

namespace rehearse {
namespace {

TraceString text_id(Trace& trace, std::string_view text) {
  const auto found = std::ranges::find(trace.strings, text);
  if (found == trace.strings.end()) {
    trace.strings.emplace_back(text);
    return static_cast<TraceString>(trace.strings.size()) - 1;
  }
  return static_cast<TraceString>(found - trace.strings.begin());
}

// What a mixed model's layer is made of: " (mamba2)", " (attention, MLP)"; experts are said apart.
std::string made_of(const Transformer& layer) {
  std::string names;
  const auto add = [&names](std::string_view name) {
    names.append(names.empty() ? " (" : ", ").append(name);
  };
  for (const std::string& kind : kind_names(layer)) add(kind);
  if (layer.has_attention) add("attention");
  if (layer.has_mlp && (layer.experts.count == 0 || layer.experts.beside_mlp)) add("MLP");
  return names.empty() ? names : names + ")";
}

std::string body_name(const Transformer& model, const BodyShape& shape) {
  static constexpr std::array<std::string_view, 3> kSegments{"embedding", "layer", "head"};
  static constexpr std::array<std::string_view, kDirections> kLetters{"F", "B", "I", "W", "R"};
  std::string name(shape.prediction ? "prediction layer"
                                    : kSegments[static_cast<std::size_t>(shape.segment)]);
  if (shape.variant >= 0) name += made_of(variant(model, shape.variant));
  if (shape.experts) name += " with experts";
  name.append(" ").append(kLetters[static_cast<std::size_t>(shape.direction)]);
  if (shape.apart) name += " behind R";
  if (shape.slice >= 0) name += ", slice " + std::to_string(shape.slice);
  if (!shape.rotates) name += ", not rotated";
  if (model.windowed_layers.empty() || !shape.reach) return name;  // all layers reach alike
  if (shape.reach->window > 0) name += ", window " + std::to_string(shape.reach->window);
  if (shape.reach->chunk > 0) name += ", chunks of " + std::to_string(shape.reach->chunk);
  return name;
}

class NodeTable {
 public:
  NodeTable(Trace& trace, const Schedule& schedule, const Layout& layout, const NodeTimes& times)
      : trace_(trace), schedule_(schedule), layout_(layout), times_(times) {}

  void fill() {
    std::vector<std::int32_t> run_begin{0};
    for (const TraceClass& c : trace_.classes) {
      const std::size_t first = runs_.size();
      if (c.kind == OpKind::Overlap && c.second_stage) {
        add_runs({c.first_kind, c.stage, 0, -1, c.slice}, first);
        add_runs({c.second_kind, c.second_stage, 0, -1, c.second_slice, c.apart != 0}, first);
      } else if (traits(c.kind).op_class == OpClass::Compute && c.stage) {
        add_runs({c.kind, c.stage, c.segment_begin, c.segment_end, c.slice, c.apart != 0}, first);
      }
      run_begin.push_back(static_cast<std::int32_t>(runs_.size()));
    }
    trace_.run_begin = std::move(run_begin);
    trace_.runs = std::move(runs_);
    trace_.bodies = std::move(bodies_);
    trace_.nodes = std::move(nodes_);
    trace_.meetings = std::move(meetings_);
  }

 private:
  // What an op, or half of a pair, covers.
  struct Covered {
    OpKind kind{};
    Stage stage{};
    std::int32_t begin = 0, end = -1, slice = -1;
    bool apart = false;
  };
  // `from`: runs before it belong to other classes.
  void add_runs(const Covered& of, std::size_t from) {
    if (of.stage.index() >= schedule_.segments.size()) return;
    const auto& segments = schedule_.segments[of.stage.index()];
    const auto count = static_cast<std::int32_t>(segments.size());
    const std::int32_t last = of.end < 0 ? count : std::min(of.end, count);
    for (std::int32_t s = of.begin; s < last; ++s) {
      const SegmentInfo& segment = segments[static_cast<std::size_t>(s)];
      const std::int32_t body =
          body_of(body_shape(layout_, segment, direction_of(of.kind), of.slice, of.apart));
      if (runs_.size() > from && runs_.back().body == body) {
        ++runs_.back().count;
      } else {
        runs_.push_back({.body = body});
      }
    }
  }

  std::int32_t body_of(const BodyShape& shape) {
    const auto [known, fresh] =
        known_.try_emplace(shape, static_cast<std::int32_t>(bodies_.size()));
    if (!fresh) return known->second;
    const Body body = make_body(layout_, shape);
    const std::vector<NodeTime> times = times_ ? times_(body) : std::vector<NodeTime>{};
    TraceBody entry{.name = text_id(trace_, body_name(layout_.model, shape)),
                    .node_begin = static_cast<std::int32_t>(nodes_.size())};
    for (std::size_t i = 0; i < body.nodes.size(); ++i) {
      const Node& node = body.nodes[i];
      TraceNode made{.name = text_id(trace_, node.name),
                     .collective = collective_kind(node.kind()) != OpKind::Forward,
                     .overlapped = node.overlapped || node.until > static_cast<std::int32_t>(i) + 1,
                     .recompute = node.phase == NodePhase::Recompute,
                     .m = node.m,
                     .n = node.n,
                     .k = node.k,
                     .batch = node.batch,
                     .flops = std::llround(std::min(node.flops, 0x1p62)),
                     .bytes = node.bytes};
      if (i < times.size()) {
        made.time_ns = times[i].time.value;
        made.level = times[i].cost_level;
      }
      if (made.collective != 0) {
        meetings_.push_back({.node = static_cast<std::int32_t>(nodes_.size()),
                             .until = node.until >= 0 ? entry.node_begin + node.until : -1,
                             .kind = collective_kind(node.kind()),
                             .group = kind_along(node.axis)});
      }
      nodes_.push_back(made);
    }
    entry.node_end = static_cast<std::int32_t>(nodes_.size());
    bodies_.push_back(entry);
    return known->second;
  }

  Trace& trace_;
  const Schedule& schedule_;
  const Layout& layout_;
  const NodeTimes& times_;
  std::map<BodyShape, std::int32_t> known_;
  std::vector<TraceBodyRun> runs_;
  std::vector<TraceBody> bodies_;
  std::vector<TraceNode> nodes_;
  std::vector<TraceMeeting> meetings_;
};

}  // namespace

std::vector<TraceRow> trace_rows(const Schedule& schedule, const Plan& plan,
                                 std::int64_t capacity_bytes) {
  const Mesh mesh(plan);
  std::vector<TraceRow> rows;
  for (const RankClassInfo& row : schedule.rows) {
    const Rank first = mesh.rank({.context = row.data_begin % plan.context_parallel,
                                  .data = row.data_begin / plan.context_parallel,
                                  .pipeline = row.position.value});
    rows.push_back({.position = row.position,
                    .multiplicity = row.multiplicity,
                    .first_rank = first,
                    .capacity_bytes = capacity_bytes});
  }
  return rows;
}

void add_operands(Trace& trace, const Schedule& schedule) {
  std::vector<TraceString> buckets;
  for (const Bucket& bucket : schedule.buckets) buckets.push_back(text_id(trace, bucket.name));
  std::vector<TraceValue> values;
  values.reserve(schedule.values.size());
  for (const Value& v : schedule.values) {
    values.push_back({.kind = v.kind,
                      .home = v.home,
                      .shard = v.shard,
                      .persistent = v.persistent,
                      .row = v.row,
                      .stage = v.stage,
                      .microbatch = v.microbatch,
                      .segment_begin = v.segment_begin,
                      .segment_end = v.segment_end,
                      .bucket = v.bucket ? buckets[v.bucket.index()] : -1,
                      .instance = v.instance,
                      .define = v.define,
                      .last_use = v.last_use,
                      .hold_until = v.hold_until,
                      .bytes = v.bytes.value,
                      .offset = v.offset.value});
  }
  std::vector<TraceOperand> operands;
  operands.reserve(schedule.operands.size());
  for (const Operand& o : schedule.operands) {
    operands.push_back({.value = o.value.value,
                        .version = o.version,
                        .access = o.access,
                        .last = static_cast<std::uint8_t>(o.last)});
  }
  trace.operand_begin = std::vector<std::int32_t>(schedule.operand_begin);
  trace.operands = std::move(operands);
  trace.values = std::move(values);
}

void add_nodes(Trace& trace, const Schedule& schedule, const Layout& layout,
               const NodeTimes& times) {
  NodeTable(trace, schedule, layout, times).fill();
}

std::string value_name(const Trace& trace, std::int32_t id) {
  const TraceValue& v = trace.values[static_cast<std::size_t>(id)];
  const bool sliced =
      v.instance >= 0 &&
      (v.kind == ValueKind::Activation || v.kind == ValueKind::ActivationGradient ||
       v.kind == ValueKind::SavedForDgrad || v.kind == ValueKind::SavedForWgrad ||
       v.kind == ValueKind::LeftForWgrad || v.kind == ValueKind::RemadeForDgrad ||
       v.kind == ValueKind::RemadeForWgrad || v.kind == ValueKind::KeyValueGradient);
  return value_name(Value{.kind = v.kind,
                          .home = v.home,
                          .persistent = v.persistent != 0,
                          .shard = v.shard != 0,
                          .stage = v.stage,
                          .microbatch = v.microbatch,
                          .segment_begin = v.segment_begin,
                          .segment_end = v.segment_end,
                          .bucket = v.bucket >= 0 ? BucketId{0} : BucketId{},
                          .instance = v.instance},
                    std::string(trace.text(v.bucket)), sliced);
}

}  // namespace rehearse
