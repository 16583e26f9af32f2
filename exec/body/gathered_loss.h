// SPDX-License-Identifier: Apache-2.0
// The loss of outputs that one rank has gathered from all replicas.
#pragma once

#include <cstddef>
#include <cstdint>

#include "exec/backend/backend.h"
#include "schedules/scenario/layout.h"

namespace rehearse::exec {

struct GatheredLoss {
  std::byte* logits = nullptr;  // of all replicas; their gradients take their place
  const std::int32_t* targets = nullptr;
  std::byte* workspace = nullptr;
  float* loss = nullptr;  // is added to
};
// What make_loss_body lists. `scale`: 1 / (tokens of the global batch).
void perform(const GatheredLoss& at, const Layout& layout, Kernels& kernels, Lane lane,
             float scale);

}  // namespace rehearse::exec
