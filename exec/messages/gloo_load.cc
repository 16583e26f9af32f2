// SPDX-License-Identifier: Apache-2.0
// The command's side of the module; gloo_communicator.cc is what the module holds.
#include "exec/messages/gloo_communicator.h"
#include "schedules/base/installed/module.h"

namespace rehearse::exec {

bool has_gloo() {
  return has_module<GlooModule>();
}

Result<std::unique_ptr<ProcessCommunicator>> connect_gloo(const GlooOptions& options,
                                                          StoreClient& store) {
  const auto module = load_module<GlooModule>();
  if (!module) return module.error();
  return module.value()->connect(options, store);
}

}  // namespace rehearse::exec
