// SPDX-License-Identifier: Apache-2.0
// A plan's numbers as the expressions of layer kinds name them.
#pragma once

#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"
#include "schedules/scenario/layout.h"

namespace rehearse {

inline KindPlan kind_plan(const Layout& layout) {
  const Plan& plan = layout.plan;
  return {.tokens = layout.shape.tokens,
          .samples = plan.micro_batch,
          .sequence = plan.sequence_length,
          .element = layout.shape.element,
          .tensor = plan.tensor_parallel,
          .context = plan.context_parallel,
          .expert = plan.expert_parallel,
          .local = layout.shape.local,
          .index_loss = static_cast<std::int64_t>(plan.indexer_loss)};
}

}  // namespace rehearse
