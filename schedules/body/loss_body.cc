// SPDX-License-Identifier: Apache-2.0
#include "schedules/body/loss_body.h"

#include "schedules/body/framework/body_framework.h"
#include "schedules/body/own/body_rehearse.h"

namespace rehearse {

Plan with_whole_batch(const Plan& plan) {
  Plan whole = plan;
  whole.data_parallel = 1;
  whole.micro_batch *= plan.data_parallel;
  return whole;
}

Body make_loss_body(const Layout& layout) {
  const Plan plan = with_whole_batch(layout.plan);
  const Layout whole(layout.model, plan);
  return plan.runtime.performer().own_kernels ? make_rehearse_loss(whole)
                                              : make_framework_loss(whole);
}

std::int64_t output_columns(const Layout& layout) {
  return layout.plan.runtime.performer().own_kernels ? layout.shape.logit_columns
                                                     : layout.shape.vocabulary;
}

}  // namespace rehearse
