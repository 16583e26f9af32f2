// SPDX-License-Identifier: Apache-2.0
#include "cli/trace/waterfall_of.h"

namespace rehearse::cli {

viz::Waterfall waterfall_of(const sim::Explanation& explanation) {
  viz::Waterfall waterfall{.title = explanation.sentence,
                           .from = "A: " + explanation.a.title,
                           .to = "B: " + explanation.b.title,
                           .begin = explanation.a.breakdown.step_ns};
  for (const sim::CauseDifference& cause : explanation.causes) {
    if (cause.difference() == 0) continue;
    waterfall.steps.push_back({sim::words_of(cause.causes), cause.difference()});
  }
  return waterfall;
}

std::optional<viz::Waterfall> waterfall_of(const Trace& a, const Trace& b) {
  if (a.step().value <= 0 || b.step().value <= 0) return std::nullopt;
  return waterfall_of(sim::explain(sim::explained(a), sim::explained(b)));
}

}  // namespace rehearse::cli
