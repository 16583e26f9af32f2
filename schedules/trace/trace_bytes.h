// SPDX-License-Identifier: Apache-2.0
// A trace as the bytes of its file, without a file: what a page carries, and what a browser reads.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "schedules/trace/trace.h"

namespace rehearse {

// What write_trace writes, part by part; and whole.
void put_trace(const Trace& trace, const std::function<void(const void*, std::size_t)>& put);
std::string trace_bytes(const Trace& trace);

// Reads it: columns point into `bytes`, which the trace keeps. `name` stands in errors.
Result<Trace> trace_of(MappedTrace bytes, const std::string& name);

}  // namespace rehearse
