// SPDX-License-Identifier: Apache-2.0
#include "sim/search/report/why_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "schedules/scenario/plan_line.h"
#include "sim/search/expert_advice.h"
#include "sim/search/report/found_parts.h"

namespace rehearse::sim {
namespace {

std::string limits_text(const FoundPlan& best) {
  std::vector<StepPart> parts = parts_of(best);
  parts.erase(parts.begin());
  std::ranges::stable_sort(
      parts, [](const StepPart& a, const StepPart& b) { return a.seconds > b.seconds; });
  std::string text = fmt::format("computing {:.1f} %", 100 * best.busy_s / best.step_s);
  for (std::size_t i = 0; i < 3 && parts[i].seconds > 0.005 * best.step_s; ++i) {
    text += fmt::format(", {} {:.1f} %", parts[i].name, 100 * parts[i].seconds / best.step_s);
  }
  const auto exposed =
      std::ranges::max_element(best.communication, {}, &CommunicationRow::exposed_s);
  if (exposed != best.communication.end() && exposed->exposed_s > 0.005 * best.step_s) {
    text += fmt::format("; most of it waiting for {} {} ({})", traits(exposed->traffic.group).name,
                        traits(exposed->traffic.kind).name, seconds_text(exposed->exposed_s));
  }
  return text;
}

std::string loss_text(const FoundPlan& best, const FoundPlan& second) {
  const std::vector<StepPart> a = parts_of(best), b = parts_of(second);
  std::vector<StepPart> more;
  for (std::size_t i = 0; i < a.size(); ++i)
    more.push_back({a[i].name, b[i].seconds - a[i].seconds});
  const auto worst = std::ranges::max_element(more, {}, &StepPart::seconds);
  const auto gained = std::ranges::min_element(more, {}, &StepPart::seconds);
  std::string text = fmt::format("{} ({:.1f} %) slower", seconds_text(second.step_s - best.step_s),
                                 100 * (second.step_s / best.step_s - 1));
  if (worst->seconds > 0)
    text += fmt::format(": {} more {}", seconds_text(worst->seconds), worst->name);
  if (gained->seconds < -1e-9) {
    text += fmt::format(", though {} less {}", seconds_text(-gained->seconds), gained->name);
  }
  return text;
}

// The first plan in the list that differs from the best in more than a name or a detail.
const FoundPlan* runner_up(const SearchResult& result) {
  const auto shape = [](const Plan& p) {
    return std::tuple(p.tensor_parallel, p.pipeline_parallel, p.context_parallel,
                      p.context_parallel_algorithm, p.head_exchange_group, p.expert_parallel,
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

}  // namespace

std::string situation_text(const SituationReport& s) {
  switch (s.situation) {
    case Situation::EverythingFits:
      return fmt::format(
          "everything fits on each GPU: a whole replica with its training state takes {} of {},\n"
          "  so replicas need only data parallelism",
          gigabytes_text(s.replica_bytes), gigabytes_text(s.capacity));
    case Situation::StateTooLarge:
      return s.weights_fit ? fmt::format(
                                 "the model fits on one GPU ({} of weights), but not with its "
                                 "training state ({} of {}):\n  ZeRO or a pipeline has to share it",
                                 gigabytes_text(s.weights_bytes), gigabytes_text(s.replica_bytes),
                                 gigabytes_text(s.capacity))
                           : fmt::format(
                                 "not even the weights fit on one GPU ({} of {}), but a layer with "
                                 "its state and work does ({}):\n  ZeRO, a pipeline or tensor "
                                 "parallelism has to share it",
                                 gigabytes_text(s.weights_bytes), gigabytes_text(s.capacity),
                                 gigabytes_text(s.layer_bytes));
    case Situation::LayerTooLarge:
      return fmt::format(
          "not even one layer's state and work fits on a GPU ({} of {}):\n"
          "  layers have to be split, tensor parallelism within the node first",
          gigabytes_text(s.layer_bytes), gigabytes_text(s.capacity));
  }
  return {};
}

std::string why_text(const SearchResult& result) {
  const FoundPlan& best = result.best.front();
  std::string text = "\nwhy\n";
  if (result.situation) text += "  " + situation_text(*result.situation) + "\n";
  text += "  the first plan's step: " + limits_text(best) + "\n";
  if (const FoundPlan* second = runner_up(result)) {
    text += "  the next other layout, " + plan_line(second->plan) + ",\n    is " +
            loss_text(best, *second) + "\n";
  }
  if (result.experts) text += indented(expert_advice_text(*result.experts, best));
  if (!result.sensitivities.empty()) {
    text += "  by how much the fastest step shortens with better hardware (simulated again)\n";
    for (const Sensitivity& s : result.sensitivities) {
      text += fmt::format("    {:<17} +{:.0f} %: {:>5.1f} %{}\n", s.what, 100 * (s.factor - 1),
                          100 * (1 - s.step_s / result.fastest_s),
                          s.plan == best.plan ? "" : "  with " + plan_line(s.plan));
    }
  }
  return text;
}

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
      if (const std::optional<StepPart> idle = longest_idle(best)) {
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

}  // namespace rehearse::sim
