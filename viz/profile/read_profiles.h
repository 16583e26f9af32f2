// SPDX-License-Identifier: Apache-2.0
// The kinds of profile that are known, each as the ranks that it tells of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/trace/trace.h"
#include "viz/profile/families.h"
#include "viz/profile/rank_profile.h"

namespace rehearse::viz {

// A file of PyTorch's profiler. With device events: kernels that compute count before everything,
// and steps are the device's where it marks them, for the host runs ahead. Without (a run on a
// CPU): what the thread that marks the steps does. Transfers know their other end, collectives
// their group, where torch wrote them (record_shapes on a CPU). Error: "PATH: what is wrong".
Result<RankProfile> kineto_profile(std::string_view text, const std::string& path,
                                   const Families& families);

// A trace of ours, measured or predicted: one profile for each of its rows, by its first rank. What
// an op waits for inside itself, where the trace knows it, stands at the op's end and meets nobody.
std::vector<RankProfile> trace_profiles(const Trace& trace, const std::string& path);

}  // namespace rehearse::viz
