// SPDX-License-Identifier: Apache-2.0
// What the training frameworks launch inside a compute op: bodies of runtimes megatron and fsdp.
//
// Counts only (FLOPs, bytes, kernels), no tensors: a framework's memory is replayed from its own
// profile (sim/memory). Op set, bytes per element and what is recomputed: docs/cost_models.md.
#pragma once

#include "schedules/body/body.h"

namespace rehearse {

// Expert-parallel communication is not part of it: experts are counted at their top-k work.
Body make_framework_body(const Layout& layout, const BodyShape& shape);
// The loss of logits that lie there, and its gradient.
Body make_framework_loss(const Layout& layout);

// HBM traffic of the end of a step, per parameter that the rank updates [B].
// Adam: reads gradient, master weight and two moments, writes the latter three and the 16-bit copy.
std::int64_t optimizer_bytes_per_parameter(const Plan& plan);
std::int64_t gradient_norm_bytes_per_parameter(const Plan& plan);  // per parameter of its shard

}  // namespace rehearse
