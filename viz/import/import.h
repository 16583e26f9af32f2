// SPDX-License-Identifier: Apache-2.0
// Foreign traces: Chrome's JSON, as PyTorch's profiler (Kineto) writes it, plain or gzipped.
//
// What rehearse exported comes back as it was. From a Kineto file with device events the rows are
// the devices, the lanes their streams, and host events are left out; else a row is a process and a
// lane a thread. Spans that nest or overlap get lanes of their own. Kernels of NCCL are told by
// their names; what else a kernel is for no name says, so it stays "other work". Where torch's
// pipelining ran, its ranges "PP:2F3" are the schedule's ops, on a first lane of their own.
#pragma once

#include <string>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

// A file of ours or a foreign one, by its content; or a folder of foreign ones, one per rank, which
// become one trace on the clock that the files have in common. Error: "FILE: what is wrong", for
// JSON with the byte where it is.
Result<Trace> load_trace(const std::string& path);
// The content of a file, inflated where it is gzipped.
Result<std::string> read_inflated(const std::string& path);
// REQUIRES: nothing of `text`; `name` is for errors.
Result<Trace> import_chrome(std::string_view text, const std::string& name);

// One file, and where it belongs among others.
struct Profile {
  Trace trace;
  std::int64_t origin_ns = 0;  // time 0 of the trace, on the file's clock
  std::int32_t rank = -1;      // as the file says; -1: it does not
  bool ours = false;           // rehearse exported it
};
Result<Profile> import_profile(std::string_view text, const std::string& name);
// Rows by rank, then as they came. REQUIRES: no profile is ours; at least one. Error: they are not
// of one run, a day or more apart.
Result<Trace> join_profiles(std::vector<Profile> profiles);

}  // namespace rehearse::viz
