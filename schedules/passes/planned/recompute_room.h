// SPDX-License-Identifier: Apache-2.0
// How much memory a plan's memory_limit leaves to what is computed again ahead of its backward.
#pragma once

#include "schedules/order/place_recompute.h"
#include "schedules/scenario/layout.h"

namespace rehearse {

// What an R of each stage leaves to I and to W, and what may be alive on a position, both in
// activations as memory_limit counts them: what a forward of the stage keeps. Of our executor's
// bodies, whose slabs the schedule knows; of a framework's tensors it knows no sizes, and under a
// limit has room for none. No limit without memory_limit.
RecomputeRoom recompute_room(const Layout& layout, const Schedule& order);

}  // namespace rehearse
