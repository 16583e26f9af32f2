// SPDX-License-Identifier: Apache-2.0
// What a run says of the exchanges of a file's own groups: who held what, before and after.
#pragma once

#include <string>
#include <vector>

#include "exec/step/exchanges/exchange_counts.h"
#include "exec/step/exchanges/own_exchanges.h"
#include "schedules/base/json_document.h"

namespace rehearse::cli {

// Empty where there are none. One exchange after the other, in the order of the first rank's
// program.
std::string exchanges_text(const std::vector<exec::HeldExchange>& held);
// In what collectives the ranks met in a step, of the rank that exchanged most; rings are
// SEND_RECV, as in a prediction's `communication`.
Json collectives_json(const std::vector<exec::CollectiveCount>& counts);
Json exchanges_json(const std::vector<exec::HeldExchange>& held);

}  // namespace rehearse::cli
