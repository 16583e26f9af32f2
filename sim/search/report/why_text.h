// SPDX-License-Identifier: Apache-2.0
// Why the first plan of a search is the best, for people.
#pragma once

#include <string>

#include "sim/search/report/search_report.h"

namespace rehearse::sim {

// The situation that the model is in on this cluster, in a sentence.
std::string situation_text(const SituationReport& s);
// Says of one search what limits the best plan, what the next other layout loses, what would help.
// REQUIRES: it found a plan.
std::string why_text(const SearchResult& result);
// One line for each cluster and number of GPUs: what limits its best plan, what would help.
std::string reasons_text(const SearchReport& report);

}  // namespace rehearse::sim
