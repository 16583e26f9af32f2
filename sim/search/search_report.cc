// SPDX-License-Identifier: Apache-2.0
#include "sim/search/search_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "schedules/base/counted.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/recompute_parts.h"
#include "schedules/trace/trace.h"
#include "sim/search/expert_advice.h"

namespace rehearse::sim {
namespace {

using Json = nlohmann::ordered_json;

std::string gb(std::int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}
std::string seconds(double s) {
  if (s >= 1) return fmt::format("{:.3f} s", s);
  if (s >= 1e-3) return fmt::format("{:.2f} ms", s * 1e3);
  return fmt::format("{:.1f} us", s * 1e6);
}
std::string energy(double joules) {
  return joules >= 1e5   ? fmt::format("{:.2f} MJ", joules * 1e-6)
         : joules >= 1e2 ? fmt::format("{:.1f} kJ", joules * 1e-3)
                         : fmt::format("{:.2f} J", joules);
}
std::string days(double s) {
  if (s >= 86400) return fmt::format("{:.1f} d", s / 86400);
  return fmt::format("{:.1f} h", s / 3600);
}

double tokens_per_usd(const FoundPlan& plan) {
  return plan.tokens_per_s * plan.step_s / *plan.usd_per_step;
}

bool near(const FoundPlan& plan) {
  return near_capacity(plan.peak_device, plan.capacity);
}

// Behind a plan: how many it stands for, and who else is needed to launch it.
std::string marks_of(const FoundPlan& plan) {
  std::string text;
  if (!plan.equal.empty()) {
    const double fastest = std::ranges::min_element(plan.equal, {}, &EqualPlan::step_s)->step_s;
    text += fmt::format("  [and {} equal, from {}]", plan.equal.size(),
                        seconds(std::min(fastest, plan.step_s)));
  }
  if (!plan.launched_elsewhere.empty()) {
    text += fmt::format("  [launched by: {}]", plan.launched_elsewhere);
  }
  return text;
}

std::string table(const SearchResult& result) {
  const bool priced = !result.best.empty() && result.best.front().usd_per_step.has_value();
  std::string text = fmt::format(
      "{:>3} {:>11} {:>6} {:>10} {:>7} {:>11} {}{:>9}  {}\n", "", "step", "MFU", "headroom",
      "bubble", "tokens/s", priced ? fmt::format("{:>11} ", "tokens/USD") : "", "energy", "plan");
  for (std::size_t i = 0; i < result.best.size(); ++i) {
    const FoundPlan& plan = result.best[i];
    text +=
        fmt::format("{:>3} {:>11} {:>6} {:>10}{}{:>5.1f} % {:>11} {}{:>9}  {}\n", i + 1,
                    seconds(plan.step_s), plan.mfu ? fmt::format("{:.1f} %", *plan.mfu * 100) : "-",
                    gb(plan.capacity - plan.peak_device), near(plan) ? '~' : ' ',
                    plan.bubble_ratio * 100, with_commas(plan.tokens_per_s),
                    priced ? fmt::format("{:>11} ", with_commas(tokens_per_usd(plan))) : "",
                    energy(plan.energy_j), layout_text(plan.plan) + marks_of(plan));
  }
  if (std::ranges::any_of(result.best, near)) {
    text += "  ~ within 5 % of the capacity: too near to be sure that it fits\n";
  }
  return text;
}

// What the list says of its own certainty.
std::string certainty_text(const SearchResult& result) {
  const FoundPlan& best = result.best.front();
  std::string text = fmt::format("\n  the first row's step: 9 in 10 between {} and {}\n",
                                 seconds(best.low_s), seconds(best.high_s));
  if (result.equal_within > 0) {
    text += fmt::format(
        "  plans less than {:.1f} % apart are one row, of which the simplest is shown (--all lists "
        "them): of measured\n  plans so near, more than one pair in three is in the other order; "
        "from {:.1f} % on nine in ten are in this one\n",
        100 * std::expm1(result.equal_within), 100 * std::expm1(result.ordered_from));
  }
  std::string sources;
  for (const NearCases& near : best.nearest) {
    sources +=
        fmt::format("{}{} ({:.0f} %)", sources.empty() ? "" : ", ", near.source, 100 * near.share);
  }
  if (!sources.empty()) text += "  all of it rests on measured steps near to it: " + sources + "\n";
  return text;
}

std::string situation_text(const SituationReport& s) {
  switch (s.situation) {
    case Situation::EverythingFits:
      return fmt::format(
          "everything fits on each GPU: a whole replica with its training state takes {} of {},\n"
          "  so replicas need only data parallelism",
          gb(s.replica_bytes), gb(s.capacity));
    case Situation::StateTooLarge:
      return s.weights_fit ? fmt::format(
                                 "the model fits on one GPU ({} of weights), but not with its "
                                 "training state ({} of {}):\n  ZeRO or a pipeline has to share it",
                                 gb(s.weights_bytes), gb(s.replica_bytes), gb(s.capacity))
                           : fmt::format(
                                 "not even the weights fit on one GPU ({} of {}), but a layer with "
                                 "its state and work does ({}):\n  ZeRO, a pipeline or tensor "
                                 "parallelism has to share it",
                                 gb(s.weights_bytes), gb(s.capacity), gb(s.layer_bytes));
    case Situation::LayerTooLarge:
      return fmt::format(
          "not even one layer's state and work fits on a GPU ({} of {}):\n"
          "  layers have to be split, tensor parallelism within the node first",
          gb(s.layer_bytes), gb(s.capacity));
  }
  return {};
}

struct Part {
  std::string name;
  double seconds = 0;
};
// What a step consists of: computing, and every cause of idleness.
std::vector<Part> parts_of(const FoundPlan& plan) {
  std::vector<Part> parts{{"computing", plan.busy_s}};
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    parts.push_back({std::string(kIdleCauseNames[c]), plan.causes_s[c]});
  }
  return parts;
}

std::string limits_text(const FoundPlan& best) {
  std::vector<Part> parts = parts_of(best);
  parts.erase(parts.begin());
  std::ranges::stable_sort(parts,
                           [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
  std::string text = fmt::format("computing {:.1f} %", 100 * best.busy_s / best.step_s);
  for (std::size_t i = 0; i < 3 && parts[i].seconds > 0.005 * best.step_s; ++i) {
    text += fmt::format(", {} {:.1f} %", parts[i].name, 100 * parts[i].seconds / best.step_s);
  }
  const auto exposed =
      std::ranges::max_element(best.communication, {}, &CommunicationRow::exposed_s);
  if (exposed != best.communication.end() && exposed->exposed_s > 0.005 * best.step_s) {
    text += fmt::format("; most of it waiting for {} {} ({})", traits(exposed->traffic.group).name,
                        traits(exposed->traffic.kind).name, seconds(exposed->exposed_s));
  }
  return text;
}

std::string loss_text(const FoundPlan& best, const FoundPlan& second) {
  const std::vector<Part> a = parts_of(best), b = parts_of(second);
  std::vector<Part> more;
  for (std::size_t i = 0; i < a.size(); ++i)
    more.push_back({a[i].name, b[i].seconds - a[i].seconds});
  const auto worst = std::ranges::max_element(more, {}, &Part::seconds);
  const auto gained = std::ranges::min_element(more, {}, &Part::seconds);
  std::string text = fmt::format("{} ({:.1f} %) slower", seconds(second.step_s - best.step_s),
                                 100 * (second.step_s / best.step_s - 1));
  if (worst->seconds > 0) text += fmt::format(": {} more {}", seconds(worst->seconds), worst->name);
  if (gained->seconds < -1e-9) {
    text += fmt::format(", though {} less {}", seconds(-gained->seconds), gained->name);
  }
  return text;
}

// The first plan in the list that differs from the best in more than a name or a detail.
const FoundPlan* runner_up(const SearchResult& result) {
  const auto shape = [](const Plan& p) {
    return std::tuple(p.tensor_parallel, p.pipeline_parallel, p.context_parallel, p.expert_parallel,
                      p.expert_dispatch, p.micro_batch, p.recompute, p.zero_stage == 3);
  };
  for (const FoundPlan& plan : result.best) {
    if (shape(plan.plan) != shape(result.best.front().plan)) return &plan;
  }
  return result.best.size() > 1 ? &result.best[1] : nullptr;
}

std::string indented(const std::string& lines) {
  std::string text;
  for (std::size_t from = 0; from < lines.size();) {
    const std::size_t end = lines.find('\n', from) + 1;
    text += "  " + lines.substr(from, end - from);
    from = end;
  }
  return text;
}

std::string why_text(const SearchResult& result) {
  const FoundPlan& best = result.best.front();
  std::string text = "\nwhy\n";
  if (result.situation) text += "  " + situation_text(*result.situation) + "\n";
  text += "  the first plan's step: " + limits_text(best) + "\n";
  if (const FoundPlan* second = runner_up(result)) {
    text += "  the next other layout, " + layout_text(second->plan) + ",\n    is " +
            loss_text(best, *second) + "\n";
  }
  if (result.experts) text += indented(expert_advice_text(*result.experts, best));
  if (!result.sensitivities.empty()) {
    text += "  by how much the fastest step shortens with better hardware (simulated again)\n";
    for (const Sensitivity& s : result.sensitivities) {
      text += fmt::format("    {:<17} +{:.0f} %: {:>5.1f} %{}\n", s.what, 100 * (s.factor - 1),
                          100 * (1 - s.step_s / result.fastest_s),
                          s.plan == best.plan ? "" : "  with " + layout_text(s.plan));
    }
  }
  return text;
}

std::string front_text(const SearchResult& result) {
  if (result.front.size() < 2) return {};
  std::string text = "\nmemory against time: the fastest plan for each amount of memory\n";
  for (const FoundPlan& plan : result.front) {
    text += fmt::format("  {:>10} {:>11}  {}\n", gb(plan.peak_device), seconds(plan.step_s),
                        layout_text(plan.plan));
  }
  return text;
}

std::string one_text(const SearchCase& one) {
  const SearchResult& result = one.result;
  if (result.best.empty()) {
    if (result.interrupted) return "interrupted before any plan was confirmed\n";
    return "no plan fits in memory\n" +
           (result.situation ? "  " + situation_text(*result.situation) + "\n" : std::string());
  }
  return table(result) + certainty_text(result) +
         (result.situation ? why_text(result) + front_text(result) : "");
}

std::string_view situation_words(const SituationReport& s) {
  switch (s.situation) {
    case Situation::EverythingFits:
      return "all of it fits";
    case Situation::StateTooLarge:
      return s.weights_fit ? "weights fit, state not" : "a layer fits";
    case Situation::LayerTooLarge:
      return "no layer fits";
  }
  return {};
}

// What the ranks idle for longest; none: less than half a per cent.
std::optional<Part> longest_idle(const FoundPlan& plan) {
  const std::vector<Part> parts = parts_of(plan);
  const auto longest =
      std::max_element(parts.begin() + 1, parts.end(),
                       [](const Part& a, const Part& b) { return a.seconds < b.seconds; });
  if (longest->seconds <= 0.005 * plan.step_s) return std::nullopt;
  return *longest;
}

// One line for each cluster and number of GPUs: what limits its best plan, what would help.
std::string reasons_text(const SearchReport& report) {
  const auto explained = [](const SearchCase& one) { return one.result.situation.has_value(); };
  if (std::ranges::none_of(report.cases, explained)) return {};
  std::string text = fmt::format("\nwhy{:25} {:>5}  {:<22} {:<36} {}\n", "", "GPUs", "on one GPU",
                                 "the step", "what would shorten it most");
  for (const SearchCase& one : report.cases) {
    if (!explained(one)) continue;
    const SearchResult& result = one.result;
    std::string step, helps;
    if (!result.best.empty()) {
      const FoundPlan& best = result.best.front();
      step = fmt::format("computing {:.1f} %", 100 * best.busy_s / best.step_s);
      if (const std::optional<Part> idle = longest_idle(best)) {
        step += fmt::format(", {} {:.1f} %", idle->name, 100 * idle->seconds / best.step_s);
      }
      if (!result.sensitivities.empty()) {
        const Sensitivity& first = result.sensitivities.front();
        helps = fmt::format("{} +{:.0f} %: {:.1f} %", first.what, 100 * (first.factor - 1),
                            100 * (1 - first.step_s / result.fastest_s));
      }
    }
    text += fmt::format("{:<28} {:>5}  {:<22} {:<36} {}", one.cluster.substr(0, 28), one.gpus,
                        situation_words(*result.situation), step, helps);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

std::string cases_text(const SearchReport& report) {
  std::string text =
      fmt::format("{:<28} {:>5} {:>11} {:>6} {:>12}", "cluster", "GPUs", "step", "MFU", "tokens/s");
  if (report.tokens > 0) text += fmt::format(" {:>9} {:>9} {:>14}", "goodput", "training", "cost");
  text += "  plan\n";
  for (const SearchCase& one : report.cases) {
    text += fmt::format("{:<28} {:>5} ", one.cluster.substr(0, 28), one.gpus);
    if (one.result.best.empty()) {
      text += one.result.interrupted ? "(interrupted)\n" : "no plan fits\n";
      continue;
    }
    const FoundPlan& best = one.result.best.front();
    text += fmt::format("{:>11} {:>6} {:>12}", seconds(best.step_s),
                        best.mfu ? fmt::format("{:.1f} %", *best.mfu * 100) : "-",
                        with_commas(best.tokens_per_s));
    if (report.tokens > 0) {
      text +=
          fmt::format(" {:>9} {:>9} {:>14}",
                      one.goodput ? fmt::format("{:.2f} %", one.goodput->share * 100) : "not known",
                      days(one.train->seconds),
                      one.train->usd ? with_commas(*one.train->usd) + " USD" : "not known");
    }
    text += "  " + layout_text(best.plan) + "\n";
  }
  return text;
}

Json finite(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}
template <class T>
Json optional(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Plans that the prediction cannot tell from the one shown.
Json equal_json(const FoundPlan& found) {
  Json list = Json::array();
  for (const EqualPlan& equal : found.equal) {
    list.push_back(
        {{"step_time_s", finite(equal.step_s)}, {"plan", Json::parse(plan_json(equal.plan, 0))}});
  }
  return list;
}

Json plan_summary(const FoundPlan& found) {
  Json causes = Json::object();
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    if (!reports_cause(c, found.causes_s[c] != 0)) continue;
    causes[std::string(kIdleCauseNames[c])] = finite(found.causes_s[c]);
  }
  return {{"step_time_s", finite(found.step_s)},
          {"estimated_step_time_s", finite(found.estimate_s)},
          {"tokens_per_s", finite(found.tokens_per_s)},
          {"mfu", optional(found.mfu)},
          {"bubble_ratio", finite(found.bubble_ratio)},
          {"bubble_causes_s", causes},
          {"peak_device_bytes", found.peak_device},
          {"capacity_bytes", found.capacity},
          {"headroom_bytes", found.capacity - found.peak_device},
          {"near_capacity", near(found)},
          {"usd_per_step", optional(found.usd_per_step)},
          {"tokens_per_usd", found.usd_per_step ? finite(tokens_per_usd(found)) : Json(nullptr)},
          {"energy_j", finite(found.energy_j)},
          {"error_band", finite(found.error_band)},
          {"low_s", finite(found.low_s)},
          {"high_s", finite(found.high_s)},
          {"launched_elsewhere",
           found.launched_elsewhere.empty() ? Json(nullptr) : Json(found.launched_elsewhere)},
          {"equal", equal_json(found)},
          {"plan", Json::parse(plan_json(found.plan, 0))}};
}

Json plans_json(const std::vector<FoundPlan>& plans) {
  Json list = Json::array();
  for (const FoundPlan& plan : plans) list.push_back(plan_summary(plan));
  return list;
}

std::string_view situation_name(Situation situation) {
  constexpr std::string_view kNames[] = {"everything_fits", "state_too_large", "layer_too_large"};
  return kNames[static_cast<std::size_t>(situation)];
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
      {"schedules_left_out", r.left_out},
      {"interrupted", r.interrupted},
      {"best", plans_json(r.best)},
      {"front", plans_json(r.front)}};
  json["situation"] = nullptr;
  if (r.situation) {
    const SituationReport& s = *r.situation;
    json["situation"] = {{"name", situation_name(s.situation)}, {"weights_fit", s.weights_fit},
                         {"replica_bytes", s.replica_bytes},    {"weights_bytes", s.weights_bytes},
                         {"layer_bytes", s.layer_bytes},        {"capacity_bytes", s.capacity}};
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
                       {"dispatch_s", finite(e.dispatch_s)},
                       {"imbalance_s", finite(e.imbalance_s)},
                       {"state_bytes", e.state_bytes},
                       {"tokens_cross_nodes", e.crosses},
                       {"otherwise", e.other ? plan_summary(*e.other) : Json(nullptr)}};
  }
  json["usd_per_gpu_hour"] = optional(one.usd_per_gpu_hour);
  json["goodput"] = one.goodput ? Json{{"share", one.goodput->share},
                                       {"mtbf_s", one.goodput->mtbf_s},
                                       {"checkpoint_s", one.goodput->save_s},
                                       {"interval_s", one.goodput->interval_s}}
                                : Json(nullptr);
  json["time_to_train_s"] = one.train ? finite(one.train->seconds) : Json(nullptr);
  json["cost_usd"] = one.train ? optional(one.train->usd) : Json(nullptr);
  return json;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string layout_text(const Plan& plan) {
  std::string text = fmt::format("tp {} pp {}", plan.tensor_parallel, plan.pipeline_parallel);
  if (plan.virtual_stages > 1) text += fmt::format("x{}", plan.virtual_stages);
  if (plan.context_parallel > 1) text += fmt::format(" cp {}", plan.context_parallel);
  text += expert_sizes(plan);
  text += fmt::format(" dp {}, micro-batch {}", plan.data_parallel, plan.micro_batch);
  if (plan.expert_parallel > 1 && plan.expert_dispatch != ExpertDispatch::AllToAll) {
    text += fmt::format(", {} dispatch", name_of(plan.expert_dispatch));
  }
  if (plan.pipeline_parallel > 1) text += ", " + plan.schedule;
  if (plan.zero_stage > 0) text += fmt::format(", ZeRO-{}", plan.zero_stage);
  if (plan.shard_group > 0) text += fmt::format(" over {}", plan.shard_group);
  if (plan.sequence_parallel && plan.tensor_parallel > 1) text += ", SP";
  if (plan.recompute != RecomputeMode::None || plan.recompute_parts != 0) {
    text += fmt::format(", {} recompute", recompute_text(plan));
  }
  if (plan.offload != OffloadMode::None) text += fmt::format(", offload {}", name_of(plan.offload));
  if (plan.precision.name != "bf16") text += ", " + plan.precision.name;
  return text;
}

std::string search_text(const SearchReport& report) {
  std::int64_t plans = 0, possible = 0, replayed = 0, confirmed = 0;
  bool complete = true, interrupted = false;
  for (const SearchCase& one : report.cases) {
    plans += one.result.plans;
    possible += one.result.possible;
    replayed += one.result.replayed;
    confirmed += one.result.confirmed;
    complete &= one.result.complete;
    interrupted |= one.result.interrupted;
  }
  std::string text = report.name + "\n";
  const bool single = report.cases.size() == 1;
  if (single) {
    text +=
        fmt::format("  on {} GPUs ({})\n", report.cases.front().gpus, report.cases.front().cluster);
  }
  if (!report.fixed.empty()) text += "  fixed by the scenario: " + report.fixed + "\n";
  text += fmt::format(
      "  {} plans, {} within the memory bound, {} replayed, {} simulated",
      with_commas(static_cast<double>(plans)), with_commas(static_cast<double>(possible)),
      with_commas(static_cast<double>(replayed)), with_commas(static_cast<double>(confirmed)));
  if (report.wall_s > 0) {
    text += fmt::format("; {:.1f} s, {} plans/s", report.wall_s, with_commas(report.plans_per_s));
  }
  text += "\n";
  if (interrupted) text += "  interrupted: the best so far\n";
  const std::vector<std::string>& left_out = report.cases.front().result.left_out;
  if (!left_out.empty()) {
    text +=
        "  left out, for no released framework runs them with the overlap that a prediction "
        "assumes\n  (name them in plan.schedule, or see --framework): ";
    for (const std::string& name : left_out) text += (&name == left_out.data() ? "" : ", ") + name;
    text += "\n";
  }
  if (!complete) text += "  ended at its limit of work: a better plan may be left\n";
  text += "\n";
  if (!single) return text + cases_text(report) + reasons_text(report);
  text += one_text(report.cases.front());
  const SearchCase& one = report.cases.front();
  if (report.tokens > 0 && one.train) text += "\n" + cases_text(report);
  return text;
}

std::string search_json(const SearchReport& report, const Space& space) {
  Json json = {
      {"schema", "rehearse.search/1"}, {"name", report.name}, {"model", space.base.model.name}};
  json["tokens"] = report.tokens > 0 ? Json(report.tokens) : Json(nullptr);
  json["cases"] = Json::array();
  for (const SearchCase& one : report.cases) json["cases"].push_back(case_json(one));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string search_csv(const SearchReport& report) {
  std::string text =
      "cluster,gpus,rank,step_time_s,tokens_per_s,mfu,bubble_ratio,peak_device_bytes,"
      "headroom_bytes,usd_per_step,energy_j,tensor_parallel,pipeline_parallel,context_parallel,"
      "data_parallel,schedule,virtual_stages,micro_batch,recompute,zero_stage,sequence_parallel,"
      "precision,offload,time_to_train_s,cost_usd,situation,idle_most_for,helps_most,"
      "step_time_then_s\n";
  for (const SearchCase& one : report.cases) {
    std::int32_t rank = 0;
    for (const FoundPlan& f : one.result.best) {
      const Plan& p = f.plan;
      ++rank;
      const bool first = rank == 1 && one.train.has_value();
      const std::optional<Part> idle = longest_idle(f);
      const auto& changes = one.result.sensitivities;
      const Sensitivity* helps = rank == 1 && !changes.empty() ? &changes.front() : nullptr;
      text += fmt::format(
          "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}"
          "\n",
          csv_field(one.cluster), one.gpus, rank, f.step_s, f.tokens_per_s,
          f.mfu ? fmt::format("{}", *f.mfu) : "", f.bubble_ratio, f.peak_device,
          f.capacity - f.peak_device, f.usd_per_step ? fmt::format("{}", *f.usd_per_step) : "",
          f.energy_j, p.tensor_parallel, p.pipeline_parallel, p.context_parallel, p.data_parallel,
          p.schedule, p.virtual_stages, p.micro_batch, name_of(p.recompute), p.zero_stage,
          p.sequence_parallel, p.precision.name, name_of(p.offload),
          first ? fmt::format("{}", one.train->seconds) : "",
          first && one.train->usd ? fmt::format("{}", *one.train->usd) : "",
          rank == 1 && one.result.situation ? situation_name(one.result.situation->situation) : "",
          idle ? idle->name : "", helps ? helps->what : "",
          helps ? fmt::format("{}", helps->step_s) : "");
    }
  }
  return text;
}

}  // namespace rehearse::sim
