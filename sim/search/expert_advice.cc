// SPDX-License-Identifier: Apache-2.0
#include "sim/search/expert_advice.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedules/scenario/mesh.h"
#include "schedules/scenario/plan_line.h"
#include "sim/search/report/search_report.h"

namespace rehearse::sim {
namespace {

constexpr double kMatters = 0.02;  // share of a step
constexpr double kTold = 5e-4;     // of what is shorter, the text's last digit says nothing

bool is_of_experts(GroupKind group) {
  return group == GroupKind::Expert || group == GroupKind::ExpertTensor ||
         group == GroupKind::ExpertBlock;
}

std::string gb(std::int64_t bytes) {
  return fmt::format("{:.1f} GB", static_cast<double>(bytes) * 1e-9);
}

std::string_view words(ExpertLimit limit) {
  switch (limit) {
    case ExpertLimit::None:
      return "none of them is what limits";
    case ExpertLimit::Nic:
      return "the NIC of the dispatch limits";
    case ExpertLimit::ScaleUp:
      return "links inside a node limit";
    case ExpertLimit::Imbalance:
      return "imbalance limits";
    case ExpertLimit::Memory:
      return "memory of experts limits";
  }
  return {};
}

// Where the tokens of a plan's experts go; with expert_parallel 1 every rank has all experts.
std::string_view where(const Plan& plan, bool crosses) {
  if (plan.expert_parallel == 1) return "do not travel";
  return crosses ? "cross nodes" : "stay inside a node";
}

}  // namespace

bool experts_cross_nodes(const Plan& plan, std::int32_t gpus_per_node) {
  const std::int32_t ranks = plan.expert_parallel * plan.expert_tensor_parallel;
  if (plan.expert_parallel == 1) return false;
  if (ranks > gpus_per_node || gpus_per_node % ranks != 0) return true;
  const Mesh mesh(plan);
  const auto node = [&](std::int32_t expert) {
    return mesh.rank(Folded{0, expert, 0}, /*pipeline=*/0).value / gpus_per_node;
  };
  return node(0) != node(plan.expert_parallel - 1);
}

ExpertAdvice expert_advice(const FoundPlan& best, const Cluster& cluster) {
  ExpertAdvice advice{.imbalance_s = best.causes_s[static_cast<std::size_t>(IdleCause::Imbalance)],
                      .state_bytes = best.parts.experts,
                      .crosses = experts_cross_nodes(best.plan, cluster.gpus_per_node)};
  double longest = 0;
  LinkKind link = LinkKind::Port;
  for (const CommunicationRow& row : best.communication) {
    if (!is_of_experts(row.traffic.group)) continue;
    advice.dispatch_s += row.exposed_s;
    if (row.exposed_s > longest) link = row.traffic.link;
    longest = std::max(longest, row.exposed_s);
  }
  if (std::max(advice.dispatch_s, advice.imbalance_s) < kMatters * best.step_s) return advice;
  const bool inside = is_inside_node(link);
  advice.limit = advice.imbalance_s > advice.dispatch_s ? ExpertLimit::Imbalance
                 : inside                               ? ExpertLimit::ScaleUp
                                                        : ExpertLimit::Nic;
  return advice;
}

std::string_view name_of(ExpertLimit limit) {
  constexpr std::string_view kNames[] = {"none", "nic", "scale_up", "imbalance", "memory"};
  return kNames[static_cast<std::size_t>(limit)];
}

std::string expert_advice_text(const ExpertAdvice& advice, const FoundPlan& best) {
  std::string text = fmt::format(
      "experts: {:.1f} % of the step waits for their tokens, {:.1f} % for the busiest rank, their "
      "states take {} of {}: {}\n",
      100 * advice.dispatch_s / best.step_s, 100 * advice.imbalance_s / best.step_s,
      gb(advice.state_bytes), gb(best.capacity), words(advice.limit));
  const std::string_view here = where(best.plan, advice.crosses);
  const std::string_view there = advice.other     ? where(advice.other->plan, !advice.crosses)
                                 : advice.crosses ? "stay inside a node"
                                                  : "cross nodes";
  text += fmt::format("their tokens {}; ", here);
  if (!advice.other) {
    return text + fmt::format("{} {}\n",
                              advice.has_other ? "nothing that was tried fits where they"
                                               : "no plan of this space lets them",
                              there);
  }
  const double longer = advice.other->seconds_per_token() / best.seconds_per_token() - 1;
  if (longer < kTold) {
    const std::string as_long =
        longer > -kTold ? "as long"
                        : fmt::format("{:.1f} % less, too near to tell apart", -100 * longer);
    return text + fmt::format(
                      "the fastest plan found where they {} takes {} ({}): crossing nodes "
                      "makes no difference\n",
                      there, as_long, plan_line(advice.other->plan));
  }
  return text + fmt::format(
                    "the fastest plan found where they {} takes {:.1f} % longer ({}): "
                    "crossing nodes {}\n",
                    there, 100 * longer, plan_line(advice.other->plan),
                    advice.crosses ? "pays" : "does not pay");
}

}  // namespace rehearse::sim
