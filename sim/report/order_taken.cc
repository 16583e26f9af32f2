// SPDX-License-Identifier: Apache-2.0
#include "sim/report/order_taken.h"

#include <fmt/format.h>

#include "schedules/base/json_document.h"

namespace rehearse::sim {

Json order_json(const Plan& plan, const OrderChoice& choice, std::optional<double> above) {
  const bool here = choice.considered > 0;
  Json json = {{"schedule", plan.order},
               {"virtual_stages", plan.virtual_stages},
               {"memory_limit", plan.memory_limit > 0 ? Json(plan.memory_limit) : Json(nullptr)},
               {"considered", here ? Json(choice.considered) : Json(nullptr)},
               {"fitting", here ? Json(choice.fitting) : Json(nullptr)}};
  if (plan.places_recompute) json["places_recompute"] = true;
  if (above) json["above_bound"] = *above;
  return json;
}

std::string order_line(const Plan& plan, const OrderChoice& choice, std::optional<double> above) {
  if (plan.order.empty()) return "";
  std::string taken = plan.order;
  if (taken == "auto") taken = "one planned for this model";
  if (plan.places_recompute) taken += " with recomputation in its bubbles";
  if (plan.memory_limit > 0) {
    taken += fmt::format(" within {:g} times 1F1B's activations", plan.memory_limit);
  }
  if (above) {
    taken += fmt::format(", at most {:.1f} % longer than any order of its stages in that memory",
                         100 * *above);
  }
  if (choice.considered == 0) return fmt::format("  order: {}\n", taken);
  return fmt::format("  order: {}, {} of {} that were predicted ({} fit in memory)\n", taken,
                     choice.fitting > 0 ? "the fastest" : "the one that needs least memory",
                     choice.considered, choice.fitting);
}

}  // namespace rehearse::sim
