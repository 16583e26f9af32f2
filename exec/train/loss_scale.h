// SPDX-License-Identifier: Apache-2.0
// By what a loss in fp16 is multiplied, so that its gradients are no zeros there, and when that
// changes: torch's GradScaler (pytorch/pytorch, torch/amp/grad_scaler.py and
// aten/src/ATen/native/cuda/AmpKernels.cu, amp_update_scale_).
#pragma once

#include <cstdint>

#include "schedules/scenario/plan.h"

namespace rehearse::exec {

struct LossScaleRule {
  double start = 65536, growth = 2, backoff = 0.5;
  std::int64_t interval = 2000;  // steps without an overflow after which it grows
};

// What a run goes on with; a checkpoint has it.
struct LossScale {
  double scale = 0;          // of the next step; 0: gradients carry none
  std::int64_t clean = 0;    // steps since it changed
  std::int64_t skipped = 0;  // steps without an update, in the whole run
};

// The scale of a run's first step, or of one that goes on from `before`: a number that is asked for
// stays.
inline LossScale begin_loss_scale(const Plan& plan, const TrainOptions& options,
                                  const LossScale& before = {}, const LossScaleRule& rule = {}) {
  LossScale now = before;
  const bool dynamic = options.loss_scale == 0;
  if (plan.precision.compute != ComputeType::Fp16) {
    now.scale = 0;
  } else if (!dynamic || now.scale == 0) {
    now.scale = dynamic ? rule.start : options.loss_scale;
    now.clean = 0;
  }
  return now;
}

// After a step that overflowed, or did not.
inline void update_loss_scale(const TrainOptions& options, bool overflowed, LossScale& now,
                              const LossScaleRule& rule = {}) {
  if (overflowed) ++now.skipped;
  if (now.scale == 0 || options.loss_scale != 0) return;
  if (overflowed) {
    now.scale *= rule.backoff;
    now.clean = 0;
  } else if (++now.clean == rule.interval) {
    now.scale *= rule.growth;
    now.clean = 0;
  }
}

}  // namespace rehearse::exec
