// SPDX-License-Identifier: Apache-2.0
// An order for any placement: again and again what can start first.
#pragma once

#include "schedules/ir/schedule.h"

namespace rehearse::order {

// With F = 1 and B = 2 per chunk and transfers that take no time. Of several that can start at the
// same time: backwards before forwards, then the lower micro-batch of its direction, the deeper
// stage, the lower position. A direction begins a micro-batch only while fewer than `in_flight` of
// its micro-batches have begun and not come back to its first stage. Op counts: 2 * stages *
// microbatches. REQUIRES: in_flight >= 1.
Schedule greedy_order(Placement placement, std::int32_t microbatches, std::int32_t in_flight);

}  // namespace rehearse::order
