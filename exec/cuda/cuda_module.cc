// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/cuda_module.h"

#include <filesystem>

#include "schedules/base/installed/module.h"

namespace rehearse::exec {

bool has_cuda_module() {
  return has_module<CudaModule>();
}

bool has_cuda_driver() {
  std::error_code none;
  return std::filesystem::exists("/dev/nvidiactl", none);
}

Result<const CudaModule*> load_cuda_module() {
  Result<const CudaModule*> loaded = load_module<CudaModule>();
  if (!loaded) return Error{.message = "CUDA: " + loaded.error().message, .machine = true};
  return loaded;
}

}  // namespace rehearse::exec
