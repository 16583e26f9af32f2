// SPDX-License-Identifier: Apache-2.0
// What the names of buckets (schedules/passes/parameters/buckets.cc) mean, for people who read ops
// of them.
#pragma once

#include <set>
#include <string>

namespace rehearse {

// "buckets of parameters: A several layers at once, L6 layer 6, T the embedding's table, which the
// head uses too": a line for the names that occur in a text, in their order. Empty: there are none.
std::string bucket_legend(const std::set<std::string>& names);

}  // namespace rehearse
