// SPDX-License-Identifier: Apache-2.0
// In the place of gloo_communicator.cc where the build found no Gloo.
#include "exec/messages/gloo_communicator.h"

namespace rehearse::exec {

bool has_gloo() {
  return false;
}

Result<std::unique_ptr<ProcessCommunicator>> connect_gloo(const GlooOptions&, StoreClient&) {
  return Error{"this build has no Gloo (libgloo-dev), which carries data between processes"};
}

}  // namespace rehearse::exec
