// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/plan_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "schedules/base/counted.h"
#include "schedules/base/json_document.h"
#include "schedules/scenario/memory/recompute_parts.h"
#include "schedules/scenario/plan_line.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/scenario.h"
#include "schedules/scenario/stage_layers.h"
#include "schedules/trace/cause_words.h"
#include "sim/report/fit_text.h"
#include "sim/search/expert_advice.h"
#include "sim/search/report/search_report.h"
#include "viz/analysis/units_text.h"

namespace rehearse::cli {
namespace {

std::string seconds(double s) {
  const double value = s >= 1 ? s : s * 1e3;
  return fmt::format("{:.{}f} {}", value,
                     value >= 100  ? 0
                     : value >= 10 ? 1
                                   : 2,
                     s >= 1 ? "s" : "ms");
}
std::string gb(std::int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

std::string head(const PlanAnswer& a) {
  const std::int32_t nodes = (a.gpus + a.gpus_per_node - 1) / a.gpus_per_node;
  return fmt::format("{}, {:.4g} billion parameters, on {} x {} ({} of {})\n", a.model,
                     static_cast<double>(a.parameters) * 1e-9, a.gpus, a.gpu,
                     counted(nodes, "node"), a.cluster);
}

struct Share {
  std::string_view name;
  std::int64_t bytes = 0;
};
std::vector<Share> shares(const sim::MemoryParts& p) {
  return {{"parameters", p.parameters},
          {"gradients", p.gradients},
          {"optimizer", p.optimizer},
          {"activations", p.activations},
          {"buffers", p.buffers},
          {"workspace", p.workspace},
          {"outside the allocator", p.communicators + p.context}};
}

std::string memory(const sim::FoundPlan& plan) {
  std::vector<Share> parts = shares(plan.parts);
  std::ranges::stable_sort(parts, std::greater<>{}, &Share::bytes);
  std::string text;
  for (const Share& part : parts) {
    if (part.bytes * 200 < plan.peak_device) continue;  // below half a per cent
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", part.name, gb(part.bytes));
  }
  return text;
}

std::string batch(const Plan& p) {
  const std::string replicas =
      p.data_parallel == 1 ? "" : fmt::format(" on each of {} replicas", p.data_parallel);
  return fmt::format("{} of {} x {} tokens{}; {} recomputed",
                     counted(p.microbatches(), "micro-batch"), p.micro_batch, p.sequence_length,
                     replicas, recomputed_text(p));
}

// Verdict, and the worst day that it is said of.
std::string fit(const sim::FoundPlan& plan) {
  std::string text = fmt::format("{}: {} of {} on the fullest GPU\n", name_of(plan.verdict),
                                 gb(plan.peak_device), gb(plan.capacity));
  const bool tight = plan.verdict == sim::Verdict::Tight;
  std::string day = sim::day_words(plan.load);
  if (plan.bad_day == sim::BadDayCause::AllocatorMargin)
    day = "holes in the allocator take 5 % of it";
  if (!day.empty()) {
    text += fmt::format("bad day   {} when {}\n", tight ? "it breaks" : "it holds", day);
  }
  return text;
}

std::string where(const sim::FoundPlan& plan) {
  std::string text = fmt::format("computing {:.0f} %", 100 * plan.busy_s / plan.step_s);
  std::vector<std::pair<double, std::string_view>> causes;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    causes.emplace_back(plan.causes_s[c] / plan.step_s, cause_word(c, plan.plan.gpus()));
  }
  std::ranges::stable_sort(causes, std::greater<>{}, [](const auto& cause) { return cause.first; });
  for (const auto& [share, name] : causes) {
    if (share >= 0.01) text += fmt::format(", {} {:.0f} %", name, 100 * share);
  }
  return text;
}

// Layouts within the band of their difference.
std::string near(const PlanAnswer& a) {
  if (a.near.empty()) return {};
  double widest = 0;
  for (const sim::NearPlan& one : a.near) widest = std::max(widest, one.band);
  const sim::NearPlan& next = a.near.front();
  return fmt::format(
      "near      {} within the band of their difference (up to {:.1f} %), which a measured step "
      "of\n"
      "          each tells apart; the next takes {}: {}\n",
      counted(static_cast<std::int64_t>(a.near.size()), "other layout"), 100 * std::expm1(widest),
      seconds(next.step_s), plan_line(next.plan));
}

std::string limits(const PlanAnswer& a) {
  std::string text;
  int told = 0;
  for (const sim::Sensitivity& s : a.sensitivities) {
    const double gain = a.fastest_s / s.step_s - 1;
    if (gain < 0.005 || ++told > 3) continue;
    text += fmt::format("{}{} +{:.0f} %: {:.1f} % faster", text.empty() ? "" : "; ", s.what,
                        100 * (s.factor - 1), 100 * gain);
  }
  return text;
}

Json plan_of(const sim::FoundPlan& plan) {
  return {{"step_time_s", plan.step_s},
          {"low_s", plan.low_s},
          {"high_s", plan.high_s},
          {"tokens_per_s", plan.tokens_per_s},
          {"mfu", plan.mfu ? Json(*plan.mfu) : Json(nullptr)},
          {"bubble_ratio", plan.bubble_ratio},
          {"peak_bytes", plan.peak_device},
          {"capacity_bytes", plan.capacity},
          {"verdict", name_of(plan.verdict)},
          {"bad_day",
           plan.bad_day == sim::BadDayCause::None ? Json(nullptr) : Json(name_of(plan.bad_day))},
          {"plan", Json::parse(plan_json(plan.plan, -1))}};
}

}  // namespace

std::string answer_text(const PlanAnswer& a) {
  std::string text = head(a);
  for (const std::string& one : a.assumed) text += "  assumed: " + one + "\n";
  if (!a.best) {
    text += fmt::format(
        "\nfits      NO: none of {} layouts fits into {} of a GPU on every day, whatever is "
        "sharded "
        "or recomputed\n",
        with_commas(static_cast<double>(a.considered)), gb(a.capacity));
    if (a.ways.empty()) return text + "          nothing that was tried makes it fit\n";
    for (const Way& way : a.ways) {
      text +=
          fmt::format("would fit {}: {} on the fullest GPU, {} a step ({})\n", way.what,
                      gb(way.plan.peak_device), seconds(way.plan.step_s), plan_line(way.plan.plan));
    }
    return text;
  }
  const sim::FoundPlan& best = *a.best;
  text += "\nfits      " + fit(best);
  text += fmt::format("step      {}, likely {} to {}; {} tokens/s, {} per GPU",
                      seconds(best.step_s), seconds(best.low_s), seconds(best.high_s),
                      with_commas(best.tokens_per_s), with_commas(best.tokens_per_s / a.gpus));
  if (best.mfu) {
    text += fmt::format("; MFU {:.0f} % of the peak in {}", 100 * *best.mfu,
                        name_of(best.plan.precision.compute));
  }
  text += "\nlayout    " + plan_line(best.plan) + "\nbatch     " + batch(best.plan) +
          "\nmemory    " + memory(best) + "\ntime      " + where(best) + "\n";
  text += near(a);
  if (const std::string limit = limits(a); !limit.empty()) text += "limits    " + limit + "\n";
  if (a.experts) {
    const std::string said = sim::expert_advice_text(*a.experts, best);
    const std::size_t second = said.find('\n') + 1;
    constexpr std::size_t kWord = std::string_view("experts: ").size();
    text += "experts   " + said.substr(kWord, second - kWord) + "          " + said.substr(second);
  }
  text += "flags     " + a.flags + "\n";
  text += fmt::format("          the fastest of {} layouts for {}\n",
                      with_commas(static_cast<double>(a.considered)), best.plan.runtime.title);
  if (!a.saved.empty()) {
    text += fmt::format(
        "next      rehearse simulate {0}; rehearse simulate {0} --trace step.trace; "
        "rehearse view step.trace\n",
        a.saved);
  } else {
    text += "next      --save FILE writes it as a scenario for simulate, run and view\n";
  }
  return text;
}

std::string answer_json(const PlanAnswer& a) {
  Json json{{"schema", "rehearse.plan/1"},
            {"model", a.model},
            {"parameters", a.parameters},
            {"cluster", a.cluster},
            {"gpu", a.gpu},
            {"gpus", a.gpus},
            {"assumed", a.assumed},
            {"considered", a.considered},
            {"fits", a.best.has_value()}};
  json["best"] = a.best ? plan_of(*a.best) : Json(nullptr);
  json["flags"] = a.best ? Json(a.flags) : Json(nullptr);
  json["near"] = Json::array();
  for (const sim::NearPlan& one : a.near) {
    json["near"].push_back({{"step_time_s", one.step_s},
                            {"difference_band", std::expm1(one.band)},
                            {"plan", Json::parse(plan_json(one.plan, -1))}});
  }
  json["ways"] = Json::array();
  for (const Way& way : a.ways) {
    Json row{{"what", way.what}};
    row.update(plan_of(way.plan));
    json["ways"].push_back(std::move(row));
  }
  json["limits"] = Json::array();
  for (const sim::Sensitivity& s : a.sensitivities) {
    json["limits"].push_back({{"what", s.what}, {"factor", s.factor}, {"step_time_s", s.step_s}});
  }
  json["experts"] = nullptr;
  if (a.experts) {
    const auto& other = a.experts->other;
    json["experts"] = {{"limit", name_of(a.experts->limit)},
                       {"tokens_cross_nodes", a.experts->crosses},
                       {"otherwise_step_time_s", other ? Json(other->step_s) : Json(nullptr)}};
  }
  return json.dump(2) + "\n";
}

}  // namespace rehearse::cli
