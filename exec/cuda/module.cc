// SPDX-License-Identifier: Apache-2.0
// The module's entry.
#include <nccl.h>

#include "exec/cuda/cudnn/attention.h"
#include "exec/cuda/make.h"

namespace rehearse::exec::cuda {
namespace {

std::string versions() {
  int runtime = 0, driver = 0, nccl = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  ncclGetVersion(&nccl);
  return "CUDA " + dotted(runtime) + (driver > 0 ? " (driver " + dotted(driver) + ")" : "") +
         ", NCCL " + std::to_string(nccl / 10000) + '.' + std::to_string(nccl / 100 % 100) + '.' +
         std::to_string(nccl % 100) + ", " + CudnnAttention::version();
}

}  // namespace
}  // namespace rehearse::exec::cuda

extern "C" __attribute__((visibility("default"))) const void* rehearse_cuda_module() {
  namespace cuda = rehearse::exec::cuda;
  cuda::set_environment();
  static const rehearse::exec::CudaModule module{.version = rehearse::exec::CudaModule::kVersion,
                                                 .devices = cuda::devices,
                                                 .make_backend = cuda::make_backend,
                                                 .make_nccl = cuda::make_nccl,
                                                 .inspect = cuda::inspect,
                                                 .versions = cuda::versions};
  return &module;
}
