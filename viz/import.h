// Foreign traces: Chrome's JSON, as PyTorch's profiler (Kineto) writes it, plain or gzipped.
//
// What rehearse exported comes back as it was. From a Kineto file with device events the rows are
// the devices, the lanes their streams, and host events are left out; else a row is a process and a
// lane a thread. Spans that nest or overlap get lanes of their own. Kernels of NCCL are told by
// their names; what else a kernel is for no name says, so it stays "other work".
#pragma once

#include <string>

#include "schedules/trace.h"

namespace rehearse::viz {

// A file of ours or a foreign one, by its content. Error: "FILE: what is wrong", for JSON with the
// byte where it is.
Result<Trace> load_trace(const std::string& path);
// REQUIRES: nothing of `text`; `name` is for errors.
Result<Trace> import_chrome(std::string_view text, const std::string& name);

}  // namespace rehearse::viz
