// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "schedules/base/json_document.h"
#include "schedules/ir/listing.h"
#include "schedules/passes/planned/plan_order.h"
#include "schedules/scenario/plan_names.h"
#include "sim/report/communication_text.h"
#include "sim/report/fit_text.h"
#include "sim/report/link_words.h"
#include "sim/report/order_taken.h"
#include "sim/report/rank_words.h"
#include "sim/report/report.h"
#include "sim/report/report_notes.h"

namespace rehearse::sim {
namespace {

// When the first L1 op with that name starts on the row; null where it is not one op's.
Json memory_time(const Prediction& p, std::size_t rank, std::size_t row, const std::string& name) {
  if (p.left_out.times > 0 && p.left_out.fullest_at[rank] >= 0) {
    return static_cast<double>(p.left_out.fullest_at[rank] - p.timeline.begin.value) * 1e-9;
  }
  const auto begin = static_cast<std::int32_t>(p.schedule.row_begin[row]);
  for (std::int32_t i = begin; i < p.schedule.row_begin[row + 1]; ++i) {
    const std::string label = op_label(p.schedule, {i});
    if (label == name || label.starts_with(name + "[") || label.starts_with(name + " ")) {
      return static_cast<double>(
                 (p.timeline.start[static_cast<std::size_t>(i)] - p.timeline.begin).value) *
             1e-9;
    }
  }
  return nullptr;
}

Json memory_json(const Prediction& p) {
  const MemoryReport& m = p.memory;
  Json json = {{"runtime", p.plan.runtime.name},
               {"fits", m.fits},
               {"capacity_bytes", m.capacity},
               {"peak_allocated_bytes", m.peak_allocated},
               {"peak_reserved_bytes", m.peak_reserved},
               {"peak_device_bytes", m.peak_device},
               {"host_bytes", m.host},
               {"host_capacity_bytes", m.host_capacity ? Json(*m.host_capacity) : Json(nullptr)},
               {"nvme_bytes", m.nvme},
               {"nvme_capacity_bytes", m.nvme_capacity ? Json(*m.nvme_capacity) : Json(nullptr)},
               {"near_capacity", m.near_capacity()},
               {"verdict", name_of(m.verdict())},
               {"bad_day", Json::parse(bad_day_json(m))},
               {"instead", Json::parse(instead_json(m))}};
  Json ranks = Json::array();
  const std::size_t classes = p.schedule.rows.size() / m.ranks.size();
  for (std::size_t r = 0; r < m.ranks.size(); ++r) {
    const RankMemory& rank = m.ranks[r];
    std::vector<std::int32_t> numbers;
    for (std::size_t k = 0; k < classes; ++k) {  // a replay has one row per position
      const RankClass row{static_cast<std::int32_t>(r * classes + k)};
      const std::vector<std::int32_t> of_row = ranks_of(p.schedule, row, p.plan);
      numbers.insert(numbers.end(), of_row.begin(), of_row.end());
    }
    const std::string& name = p.memory_ops[r];
    ranks.push_back(
        {{"ranks", nullptr},
         {"peak_allocated_bytes", rank.peak_allocated},
         {"peak_reserved_bytes", rank.peak_reserved},
         {"peak_device_bytes", rank.peak_device},
         {"host_bytes", rank.host},
         {"nvme_bytes", rank.nvme},
         {"allocator_retries", rank.retries},
         {"remapped_bytes", rank.remapped_bytes()},
         {"at_op", rank.at_building ? Json(nullptr) : Json(name)},
         {"at_s", rank.at_building ? Json(nullptr) : memory_time(p, r, r * classes, name)},
         {"at_building", rank.at_building},
         {"peak_in_steps_bytes", rank.peak_in_steps},
         {"parts",
          {{"parameters", rank.parts.parameters},
           {"gradients", rank.parts.gradients},
           {"optimizer", rank.parts.optimizer},
           {"activations", rank.parts.activations},
           {"buffers", rank.parts.buffers},
           {"workspace", rank.parts.workspace},
           {"communicators", rank.parts.communicators},
           {"context", rank.parts.context}}}});
    ranks.items().back()["ranks"] = Json(numbers);  // not copied: a large machine has many
    if (rank.parts.experts > 0) ranks.items().back()["parts"]["experts"] = rank.parts.experts;
    if (rank.kinds.empty()) continue;
    Json kinds = Json::array();
    for (const KindMemory& kind : rank.kinds) {
      kinds.push_back({{"kind", kind.kind},
                       {"layers", kind.layers},
                       {"parameters", kind.parameters},
                       {"activations_bytes", kind.activations}});
    }
    ranks.items().back()["kinds"] = std::move(kinds);
  }
  json["ranks"] = std::move(ranks);
  json["bytes_per_parameter"] = {{"parameters", p.plan.precision.parameters},
                                 {"gradients", gradient_bytes(p.plan)},
                                 {"optimizer", p.plan.precision.optimizer},
                                 {"gradient_copies", m.gradient_copy}};
  json["note"] = m.note.empty() ? Json(nullptr) : Json(m.note);
  if (p.resident) {
    json["arenas_bytes"] = p.resident->arenas;
    Json outside = Json::object();
    for (const ResidentPlan::Item& item : p.resident->outside) outside[item.key] = item.bytes;
    json["outside_arenas"] = std::move(outside);
    json["planned_resident_bytes"] = p.resident->total();
  }
  return json;
}

// The band, and what stands behind it.
void add_band(Json& confidence, const Prediction& p) {
  confidence["low_s"] = p.low_s();
  confidence["high_s"] = p.high_s();
  Json nearest = Json::array();
  for (const NearCases& near : p.band.nearest) {
    nearest.push_back({{"source", near.source},
                       {"cases", near.cases},
                       {"share", near.share},
                       {"differs", near.differs}});
  }
  confidence["nearest"] = std::move(nearest);
  confidence["unseen"] = p.band.unseen;
  confidence["defaulted"] = p.band.defaulted;
}

}  // namespace

std::string report_json(const Prediction& p, const Scenario& scenario, const Cluster& cluster) {
  const double ranks = static_cast<double>(p.bubbles.ranks);
  const double model = p.tflops(p.model_flops);
  const double hardware = p.tflops(p.model_flops + p.recomputed_flops);
  Json json = {{"schema", "rehearse.prediction/1"},
               {"name", scenario.name},
               {"cluster", cluster.id},
               {"gpus", p.gpus},
               {"parameters", p.parameters},
               {"microbatches", p.plan.microbatches()},
               {"step_time_s", p.step_s},
               {"tokens_per_s", p.tokens_per_s},
               {"tokens_per_s_per_gpu", p.tokens_per_s / p.gpus},
               {"model_tflops_per_gpu", model},
               {"hardware_tflops_per_gpu", hardware}};
  json["mfu"] = p.mfu();
  json["hfu"] = p.hfu();
  json["flops_convention"] =
      p.flops_convention == FlopsConvention::Megatron ? "megatron" : "megatron_causal";
  json["peak_tflops_per_gpu"] = p.peak_flops ? Json(*p.peak_flops * 1e-12) : Json(nullptr);
  json["peak_type"] = name_of(p.plan.precision.compute);
  const bool turns = cluster.workers > 0 && p.gpus > cluster.workers;
  json["ranks_per_core"] = turns ? static_cast<double>(p.gpus) / cluster.workers : 1.0;
  json["bubble_ratio"] = p.bubble_ratio();
  json["bubble_overhead"] =
      static_cast<double>(p.bubbles.idle) / static_cast<double>(p.bubbles.busy);
  json["idle_ns"] = p.bubbles.idle;
  Json seconds = Json::object(), nanoseconds = Json::object();
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    if (!reports_cause(c, p.bubbles.causes[c] != 0)) continue;
    const std::string name(kIdleCauseNames[c]);
    seconds[name] = static_cast<double>(p.bubbles.causes[c]) * 1e-9 / ranks;
    nanoseconds[name] = p.bubbles.causes[c];
  }
  json["bubble_causes_s"] = std::move(seconds);
  json["bubble_causes_ns"] = std::move(nanoseconds);
  json["memory"] = memory_json(p);
  Json rows = Json::array();
  for (const CommunicationRow& row : p.communication) {
    const std::string busiest = busiest_word(row, p, cluster);
    rows.push_back({{"group", group_word(row.traffic)},
                    {"op", op_word(row.traffic)},
                    {"ranks", row.traffic.ranks},
                    {"count", row.traffic.count},
                    {"bytes", row.traffic.bytes},
                    {"time_s", static_cast<double>(row.traffic.time.value) * 1e-9},
                    {"waits_s", static_cast<double>(row.traffic.waits.value) * 1e-9},
                    {"contended_s", row.contended_s},
                    {"exposed_s", row.exposed_s},
                    {"bus_bandwidth_gb_per_s", row.bus_bandwidth_gb_per_s},
                    {"link", link_words(row.traffic, cluster).front()},
                    {"links", link_words(row.traffic, cluster)},
                    {"busiest_link", busiest.empty() ? Json() : Json(busiest)}});
  }
  json["communication"] = std::move(rows);
  Json confidence = Json::object();
  for (std::size_t l = 0; l < kNumCostLevels; ++l) {
    confidence[std::string(name_of(static_cast<CostLevel>(l)))] = p.confidence[l];
  }
  Json tables = Json::array();
  for (const auto& [file, share] : p.tables) tables.push_back({{"file", file}, {"share", share}});
  confidence["tables"] = std::move(tables);
  confidence["error_band"] = p.error_band;
  add_band(confidence, p);
  if (p.scatter > 0) confidence["scatter"] = p.scatter;
  json["confidence"] = std::move(confidence);
  const double gpu_hours = p.gpus * p.step_s / 3600;
  const double tokens = static_cast<double>(p.plan.global_batch * p.plan.sequence_length);
  Json cost = {
      {"usd_per_step", nullptr}, {"usd_per_billion_tokens", nullptr}, {"energy_j", p.energy_j}};
  if (p.usd_per_gpu_hour) {
    cost["usd_per_step"] = gpu_hours * *p.usd_per_gpu_hour;
    cost["usd_per_billion_tokens"] = gpu_hours * *p.usd_per_gpu_hour * 1e9 / tokens;
  }
  json["cost"] = std::move(cost);
  const std::string& whole = p.left_out.whole_because;
  json["simulation"] = {{"ops", p.schedule.num_ops() + p.left_out.ops()},
                        {"performed_ops", p.schedule.num_ops()},
                        {"periods_left_out", p.left_out.times},
                        {"performed_whole", whole.empty() ? Json(nullptr) : Json(whole)},
                        {"events", p.timeline.events},
                        {"wall_s", p.wall_s},
                        {"instead_wall_s", p.instead_wall_s},
                        {"ranks_simulated", p.schedule.num_rows()},
                        {"ranks_folded", p.gpus - p.schedule.num_rows()}};
  json["notes"] = Json::array();
  for (const auto& lines : {scenario.warnings, p.warnings, notes_of(p, scenario, cluster)}) {
    for (const std::string& line : lines) json["notes"].push_back(line);
  }
  if (!p.plan.order.empty()) {
    json["order"] = order_json(p.plan, p.choice, above_bound(p.plan, p.order));
  }
  json["schedule_hash"] = p.schedule_hash();
  json["plan"] = Json::parse(plan_json(p.plan, 0));
  return json.dump(2) + "\n";
}

}  // namespace rehearse::sim
