// SPDX-License-Identifier: Apache-2.0
// What every group sends in a step, as a table for people, and what its columns do not say.
#pragma once

#include <string>
#include <string_view>

#include "sim/cluster/cluster.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

std::string communication_text(const Prediction& prediction, const Cluster& cluster);
// "dp", "own" for groups of a schedule file: the report key `group`.
std::string_view group_word(const Traffic& traffic);
// "ALL_REDUCE", "SEND_RECV": the report key `op`.
std::string op_word(const Traffic& traffic);
// "pod": the link that most of what the row was slowed by was lost to; "cores" where a CPU's ranks
// take turns. Empty: the row took as long as it takes alone.
std::string busiest_word(const CommunicationRow& row, const Prediction& prediction,
                         const Cluster& cluster);
// What of a parameter server's exchanges is in the step and what is not. Empty: there is none.
std::string server_note(const Plan& plan);

}  // namespace rehearse::sim
