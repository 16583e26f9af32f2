// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/step_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "schedules/model/attention_keys.h"
#include "sim/formulas/expert_load.h"
#include "sim/network/collective_cost.h"

namespace rehearse::sim {
namespace {

// Share of the tokens' copies that routed experts compute, where a capacity drops the rest.
double computed_copies(const Layout& layout) {
  if (layout.model.experts.count == 0) return 1;
  return balance_of(layout).rows(static_cast<double>(layout.shape.experts.tokens)).mean;
}

// FLOPs of the model without what its routed experts do not compute.
double computed_flops(const Layout& layout, FlopsConvention convention) {
  const double whole = step_flops(layout, convention), share = computed_copies(layout);
  if (share == 1) return whole;
  Transformer unrouted = layout.model;
  unrouted.experts.per_token = 0;
  const double rest = step_flops({unrouted, layout.plan}, convention);
  return rest + share * (whole - rest);
}

// FLOPs that recomputation really runs again, all ranks, in the convention of model_flops: the
// attention square in full, or what is computed of it. Counted on the nodes of the backward bodies.
double recomputed_flops(const Layout& layout, FlopsConvention convention) {
  const Transformer& model = layout.model;
  const Plan& plan = layout.plan;
  const std::int64_t s = plan.sequence_length;
  const double square = convention == FlopsConvention::Megatron
                            ? squared_pairs(model, s) / attention_pairs(model, s)
                            : 1;
  double flops = 0;
  const auto add = [&](const BodyShape& shape, std::int64_t layers) {
    double layer = 0;
    for (const Node& node : make_body(layout, shape).nodes) {
      if (node.phase != NodePhase::Recompute) continue;
      layer += node.flops * (node.kind() == NodeKind::Attention ? square : 1) *
               (node.routed ? computed_copies(layout) : 1);
    }
    flops += layer * static_cast<double>(layers);
  };
  if (segment_classes(model) > kNumSegmentShapes || plan.recompute_layers > 0) {
    for (const auto& [segment, layers] : layers_by_class(layout)) {  // but those of prediction
      add(body_shape(layout, segment, Direction::Backward), layers);
    }
    return flops * plan.microbatches() * plan.tensor_parallel * plan.context_parallel *
           plan.data_parallel;
  }
  for (const bool experts : {false, true}) {
    const bool predict = model.has_experts(model.layers - 1) == experts;
    std::int64_t layers = predict ? layout.prediction_layers() : 0;
    for (std::int64_t l = 0; l < model.layers; ++l)
      layers += model.has_experts(l) == experts ? 1 : 0;
    if (layers == 0) continue;
    add({.segment = SegmentKind::Layer, .experts = experts, .direction = Direction::Backward},
        layers);
  }
  return flops * plan.microbatches() * plan.tensor_parallel * plan.context_parallel *
         plan.data_parallel;
}

}  // namespace

void count_flops(Prediction& p, const Layout& layout, FlopsConvention convention) {
  p.flops_convention = convention;
  p.model_flops = computed_flops(layout, convention);
  p.recomputed_flops = recomputed_flops(layout, convention);
  if (const double share = computed_copies(layout); share < 1) {
    p.dropped_note = fmt::format(
        "plan.expert_capacity: routed experts drop {:.1f} % of their tokens at least; model FLOPs, "
        "MFU and HFU count what is computed",
        100 * (1 - share));
  }
}

void add_communication(Prediction& p) {
  const Schedule& s = p.schedule;
  const std::size_t num_rows = static_cast<std::size_t>(s.num_rows());
  const Timeline& timeline = p.timeline;
  // Ops of one cost send the same: count them, what was exposed and what was lost to others on
  // their links, per row. `limits`: that loss by link, of all rows of a cost.
  struct Use {
    std::int64_t count = 0, exposed = 0, contended = 0;
  };
  std::vector<Use> uses(p.pricing.traffic.size() * num_rows);
  std::vector<std::map<ResourceId, std::int64_t>> limits(p.pricing.traffic.size());
  for (std::size_t r = 0; r < num_rows; ++r) {
    for (std::int32_t i = s.row_begin[r]; i < s.row_begin[r + 1]; ++i) {
      const auto op = static_cast<std::size_t>(i);
      const auto cost = static_cast<std::size_t>(p.pricing.table.of_op[op]);
      Use& use = uses[cost * num_rows + r];
      const std::int64_t times = p.left_out.times_of({static_cast<std::int32_t>(r)}, {i});
      use.count += times;
      use.exposed += times * p.bubbles.exposed[op];
      if (timeline.contended.empty() || timeline.contended[op].value == 0) continue;
      const std::int64_t contended = times * timeline.contended[op].value;
      use.contended += contended;
      if (!timeline.limited_by.empty() && timeline.limited_by[op]) {
        limits[cost][timeline.limited_by[op]] += contended;
      }
    }
  }
  // The group's name, and the ranks of a file's own, which have none here.
  using Key = std::tuple<std::string_view, OpKind, std::int32_t>;
  struct OfRow {
    Traffic traffic;
    double contended_s = 0;
  };
  std::map<Key, CommunicationRow> rows;
  std::map<Key, std::vector<OfRow>> per_row;
  std::map<Key, std::map<ResourceId, double>> lost;
  for (std::size_t cost = 0; cost < p.pricing.traffic.size(); ++cost) {
    const auto& traffic = p.pricing.traffic[cost];
    double total = 0;
    for (const Traffic& t : traffic) total += static_cast<double>(t.time.value);
    for (const Traffic& t : traffic) {
      const Key key{traits(t.group).name, t.kind, t.group == GroupKind::Other ? t.ranks : 0};
      const double share = total > 0 ? static_cast<double>(t.time.value) / total : 0;
      CommunicationRow& row = rows[key];
      auto& mine = per_row[key];
      if (mine.empty()) mine.resize(num_rows);
      for (std::size_t r = 0; r < num_rows; ++r) {
        const Use& use = uses[cost * num_rows + r];
        if (use.count == 0) continue;
        Traffic& sum = mine[r].traffic;
        sum.group = t.group;
        sum.kind = t.kind;
        sum.ranks = t.ranks;
        sum.link = t.link;
        for (std::size_t k = 0; k < kNumLinkKinds; ++k) sum.links[k] |= t.links[k];
        sum.count += use.count * t.count;
        sum.bytes += use.count * t.bytes;
        sum.time += use.count * t.time;
        sum.waits += use.count * t.waits;
        mine[r].contended_s += static_cast<double>(use.contended) * share * 1e-9;
        row.exposed_s +=
            static_cast<double>(use.exposed) * share * 1e-9 / static_cast<double>(p.bubbles.ranks);
      }
      for (const auto& [link, time] : limits[cost]) {
        lost[key][link] += static_cast<double>(time) * share;
      }
    }
  }
  for (auto& [key, row] : rows) {
    const auto& mine = per_row[key];
    const OfRow& most = *std::ranges::max_element(
        mine, {}, [](const OfRow& one) { return one.traffic.time.value; });
    row.traffic = most.traffic;
    row.contended_s = most.contended_s;
    const auto& links = lost[key];
    if (!links.empty()) {
      row.busiest_link =
          std::ranges::max_element(links, {}, [](const auto& link) { return link.second; })->first;
    }
    row.bus_bandwidth_gb_per_s =
        bus_bandwidth(row.traffic.kind, {row.traffic.bytes}, row.traffic.ranks,
                      row.traffic.time - row.traffic.waits)
            .value *
        1e-9;
    p.communication.push_back(std::move(row));
  }
}

}  // namespace rehearse::sim
