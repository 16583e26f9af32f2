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

// An SQLite file that `nsys export` wrote: a rank for each process on each device, whose steps are
// NVTX ranges, from the first kernel that was launched in one to the last. No file says which group
// a kernel of NCCL is of: members are in it at one time, and transfers meet nobody. Several ranks
// of one file follow one another, those of file number n behind those of n files of its kind.
// Error: "PATH: what is wrong"; the module that reads SQLite is not there.
Result<std::vector<RankProfile>> nsys_profiles(const std::string& path, const Families& families);

// Megatron-LM's OpenTelemetry spans, of all files together: a batch may be of any rank. They are
// the host's: what they call computing lasts as long as the host is in it.
struct SpanFile {
  std::string path, text;
};
Result<std::vector<RankProfile>> span_profiles(const std::vector<SpanFile>& files,
                                               const Families& families);

// A trace of ours, measured or predicted: one profile for each of its rows, by its first rank. What
// an op waits for inside itself, where the trace knows it, stands at the op's end and meets nobody.
std::vector<RankProfile> trace_profiles(const Trace& trace, const std::string& path);

}  // namespace rehearse::viz
