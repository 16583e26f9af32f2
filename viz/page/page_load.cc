// SPDX-License-Identifier: Apache-2.0
// The command's side of the module.
#include "schedules/base/installed/module.h"
#include "viz/page/page_module.h"

namespace rehearse::viz {

Result<std::string> page(std::span<const Trace> traces, const PageOptions& options) {
  const auto module = load_module<PageModule>();
  if (!module) return module.error();
  return module.value()->make(traces, options);
}

}  // namespace rehearse::viz
