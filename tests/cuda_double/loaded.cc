// SPDX-License-Identifier: Apache-2.0
// In the place of exec/cuda/cuda_module.cc: the command with the double in it, instead of a module
// that it loads.
#include "exec/cuda/cuda_module.h"

extern "C" const void* rehearse_cuda_module();

namespace rehearse::exec {

bool has_cuda_module() {
  return true;
}

bool has_cuda_driver() {
  return true;
}

Result<const CudaModule*> load_cuda_module() {
  return static_cast<const CudaModule*>(rehearse_cuda_module());
}

}  // namespace rehearse::exec
