// SPDX-License-Identifier: Apache-2.0
// How many rows the experts of a rank have, as the plan says: on average and on the busiest rank.
#pragma once

#include <vector>

#include "schedules/scenario/layout.h"
#include "sim/formulas/expert_routing.h"

namespace rehearse::sim {

// Over the mean of even routing. A capacity cuts both.
struct RowsOfExperts {
  double busiest = 1, mean = 1;
};

// What the model's router may choose, and what the plan says of the balance.
struct ExpertBalance {
  Routing routing;
  ExpertLoad load;
  double capacity = 0;     // rows of a rank over the mean; 0: none
  std::int32_t ranks = 1;  // e, that share the experts
  double brought = 1;      // ranks of each of them that bring tokens (q)

  // `tokens`: that one rank brings. Random routing differs by layer and micro-batch: every layer of
  // every micro-batch waits for its own busiest rank.
  RowsOfExperts rows(double tokens) const;
};
// With measured routing the factor is the mean over the layers that have experts.
ExpertBalance balance_of(const Layout& layout);
// Where a run has measured them, by layer: RowsOfExperts::busiest of each. Else empty.
std::vector<double> rows_by_layer(const Layout& layout);

}  // namespace rehearse::sim
