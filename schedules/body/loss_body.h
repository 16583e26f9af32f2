// SPDX-License-Identifier: Apache-2.0
// The loss of outputs that one rank has gathered from all replicas (DataParallel through one GPU):
// what it runs, in the chunks in which one rank with the whole batch would.
#pragma once

#include "schedules/body/body.h"

namespace rehearse {

// REQUIRES: layout.plan.has_parameter_server().
Body make_loss_body(const Layout& layout);
// The plan of one rank with the samples of all replicas.
Plan with_whole_batch(const Plan& plan);
// Columns of the outputs as they lie: of our kernels with those that round their rows up.
std::int64_t output_columns(const Layout& layout);

}  // namespace rehearse
