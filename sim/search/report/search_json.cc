// SPDX-License-Identifier: Apache-2.0
// A search's answer for scripts.
#include <cmath>

#include "schedules/base/json_document.h"
#include "schedules/trace/trace.h"
#include "sim/search/expert_advice.h"
#include "sim/search/report/found_parts.h"
#include "sim/search/report/search_report.h"

namespace rehearse::sim {
namespace {

// Plans that the prediction cannot tell from the one shown.
Json equal_json(const FoundPlan& found) {
  Json list = Json::array();
  for (const EqualPlan& equal : found.equal) {
    list.push_back(
        {{"step_time_s", equal.step_s}, {"plan", Json::parse(plan_json(equal.plan, 0))}});
  }
  return list;
}

Json plan_summary(const FoundPlan& found) {
  Json causes = Json::object();
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    if (!reports_cause(c, found.causes_s[c] != 0)) continue;
    causes[std::string(kIdleCauseNames[c])] = found.causes_s[c];
  }
  Json json = {{"step_time_s", found.step_s},
               {"estimated_step_time_s", found.estimate_s},
               {"tokens_per_s", found.tokens_per_s},
               {"mfu", found.mfu},
               {"bubble_ratio", found.bubble_ratio},
               {"bubble_causes_s", causes},
               {"peak_device_bytes", found.peak_device},
               {"capacity_bytes", found.capacity},
               {"headroom_bytes", found.capacity - found.peak_device},
               {"near_capacity", near_capacity(found)},
               {"verdict", name_of(found.verdict)},
               {"bad_day",
                found.bad_day == BadDayCause::None ? Json(nullptr) : Json(name_of(found.bad_day))},
               {"usd_per_step", found.usd_per_step},
               {"tokens_per_usd", found.usd_per_step ? tokens_per_usd(found) : Json(nullptr)},
               {"energy_j", found.energy_j},
               {"error_band", found.error_band},
               {"low_s", found.low_s},
               {"high_s", found.high_s},
               {"launched_elsewhere",
                found.launched_elsewhere.empty() ? Json(nullptr) : Json(found.launched_elsewhere)},
               {"equal", equal_json(found)},
               {"plan", Json::parse(plan_json(found.plan, 0))}};
  if (found.above_bound) json["above_bound"] = *found.above_bound;
  return json;
}

Json near_json(const std::vector<NearPlan>& near) {
  Json list = Json::array();
  for (const NearPlan& one : near) {
    list.push_back({{"step_time_s", one.step_s},
                    {"difference_band", std::expm1(one.band)},
                    {"plan", Json::parse(plan_json(one.plan, 0))}});
  }
  return list;
}

Json plans_json(const std::vector<FoundPlan>& plans) {
  Json list = Json::array();
  for (const FoundPlan& plan : plans) list.push_back(plan_summary(plan));
  return list;
}

Json case_json(const SearchCase& one) {
  const SearchResult& r = one.result;
  Json json = {
      {"cluster", one.cluster},
      {"gpus", one.gpus},
      {"plans", r.plans},
      {"plans_within_memory_bound", r.possible},
      {"plans_replayed", r.replayed},
      {"plans_confirmed", r.confirmed},
      {"complete", r.complete},
      {"equal_within", r.equal_within > 0 ? Json(std::expm1(r.equal_within)) : Json(nullptr)},
      {"ordered_from", r.ordered_from > 0 ? Json(std::expm1(r.ordered_from)) : Json(nullptr)},
      {"schedules_left_out", r.left_out},
      {"interrupted", r.interrupted},
      {"best", plans_json(r.best)},
      {"near", near_json(r.near)},
      {"front", plans_json(r.front)}};
  json["situation"] = nullptr;
  if (r.situation) {
    const SituationReport& s = *r.situation;
    json["situation"] = {{"name", name_of(s.situation)},     {"weights_fit", s.weights_fit},
                         {"replica_bytes", s.replica_bytes}, {"weights_bytes", s.weights_bytes},
                         {"layer_bytes", s.layer_bytes},     {"capacity_bytes", s.capacity}};
  }
  Json changes = Json::array();
  for (const Sensitivity& s : r.sensitivities) {
    changes.push_back({{"what", s.what},
                       {"factor", s.factor},
                       {"step_time_s", s.step_s},
                       {"plan", Json::parse(plan_json(s.plan, 0))}});
  }
  json["sensitivities"] = std::move(changes);
  json["experts"] = nullptr;
  if (r.experts) {
    const ExpertAdvice& e = *r.experts;
    json["experts"] = {{"limit", name_of(e.limit)},
                       {"dispatch_s", e.dispatch_s},
                       {"imbalance_s", e.imbalance_s},
                       {"state_bytes", e.state_bytes},
                       {"tokens_cross_nodes", e.crosses},
                       {"otherwise", e.other ? plan_summary(*e.other) : Json(nullptr)}};
  }
  json["usd_per_gpu_hour"] = one.usd_per_gpu_hour;
  json["goodput"] = one.goodput ? Json{{"share", one.goodput->share},
                                       {"mtbf_s", one.goodput->mtbf_s},
                                       {"checkpoint_s", one.goodput->save_s},
                                       {"interval_s", one.goodput->interval_s}}
                                : Json(nullptr);
  if (one.goodput) {
    json["goodput"]["simulated"] = one.spread ? Json{{"p10", one.spread->p10},
                                                     {"p50", one.spread->p50},
                                                     {"p90", one.spread->p90},
                                                     {"mean", one.spread->mean}}
                                              : Json(nullptr);
  }
  json["time_to_train_s"] = one.train ? one.train->seconds : Json(nullptr);
  json["cost_usd"] = one.train ? one.train->usd : Json(nullptr);
  json["time_to_train_late_s"] = one.late ? one.late->seconds : Json(nullptr);
  json["cost_late_usd"] = one.late ? one.late->usd : Json(nullptr);
  json["done_by"] = one.done_by.empty() ? Json(nullptr) : Json(one.done_by);
  json["energy"] = one.energy ? Json{{"gpus_kwh", one.energy->gpu_kwh},
                                     {"host_kwh", one.energy->host_kwh},
                                     {"network_kwh", one.energy->network_kwh},
                                     {"facility_kwh", one.energy->facility_kwh},
                                     {"co2_t", one.energy->co2_t}}
                              : Json(nullptr);
  json["meets"] = one.late ? Json(one.meets) : Json(nullptr);
  return json;
}

}  // namespace

std::string search_json(const SearchReport& report, const Space& space) {
  Json json = {
      {"schema", "rehearse.search/1"}, {"name", report.name}, {"model", space.base.model.name}};
  json["tokens"] = report.tokens > 0 ? Json(report.tokens) : Json(nullptr);
  json["by"] = report.by.empty() ? Json(nullptr) : Json(report.by);
  json["budget_usd"] = report.budget_usd;
  json["chosen"] = nullptr;
  if (report.chosen) {
    const SearchCase& chosen = report.cases[*report.chosen];
    json["chosen"] = {{"cluster", chosen.cluster}, {"gpus", chosen.gpus}};
  }
  json["site"] = nullptr;
  if (report.site) {
    const auto figure = [](const SourcedFigure& f) {
      return Json{{"value", f.value}, {"source", f.source}};
    };
    json["site"] = {{"pue", figure(report.site->pue)},
                    {"co2_g_per_kwh", figure(report.site->co2_g_per_kwh)},
                    {"network_w_per_nic", figure(report.site->network_w_per_nic)}};
  }
  json["flags"] = report.flags.empty() ? Json(nullptr) : Json(report.flags);
  json["cases"] = Json::array();
  for (const SearchCase& one : report.cases) json["cases"].push_back(case_json(one));
  return json.dump(2) + "\n";
}

}  // namespace rehearse::sim
