// SPDX-License-Identifier: Apache-2.0
// Where a run computes: a device and the kernels that run on it. There are three: `null` records
// what it is asked for, `cpu` runs at once, `cuda` (a module loaded at run time) enqueues on
// streams and events.
#pragma once

#include <memory>

#include "exec/backend/device.h"
#include "exec/backend/kernels.h"

namespace rehearse::exec {

struct Backend {
  std::unique_ptr<Device> device;
  std::unique_ptr<Kernels> kernels;  // may refer to the device: goes first
};

}  // namespace rehearse::exec
