// SPDX-License-Identifier: Apache-2.0
// One HTML file that shows traces as the window does, by the viewer's own core (viz/page/core.cc)
// compiled to WebAssembly: it can be sent, and fetches nothing.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "schedules/base/result.h"
#include "schedules/trace/trace.h"
#include "viz/picture/charts/waterfall.h"

namespace rehearse::viz {

struct PageOptions {
  std::string title;
  std::string report;                  // what people read beside it, as text; may be empty
  std::string version;                 // of rehearse
  std::optional<Waterfall> waterfall;  // of two traces: the causes between their steps
};

// REQUIRES: one trace, or two. Error: the module is not here, and what its build wants.
Result<std::string> page(std::span<const Trace> traces, const PageOptions& options);

}  // namespace rehearse::viz
