// SPDX-License-Identifier: Apache-2.0
// cuDNN's functions that are called here. The library is looked for when it is first wanted, so
// that one build runs with and without it; its headers are the build's.
#pragma once

#include <cudnn_graph.h>

#include <string>

namespace rehearse::exec::cuda::cudnn {

#define REHEARSE_CUDNN_CALLS(row)                                                             \
  row(cudnnGetVersion) row(cudnnGetErrorString) row(cudnnGetLastErrorString) row(cudnnCreate) \
      row(cudnnDestroy) row(cudnnSetStream) row(cudnnBackendCreateDescriptor)                 \
          row(cudnnBackendDestroyDescriptor) row(cudnnBackendSetAttribute)                    \
              row(cudnnBackendGetAttribute) row(cudnnBackendFinalize) row(cudnnBackendExecute)

struct Library {
#define REHEARSE_ROW(name) decltype(&::name) name = nullptr;
  REHEARSE_CUDNN_CALLS(REHEARSE_ROW)
#undef REHEARSE_ROW
};

// Null: there is none, and `why` says so. Loaded once, never unloaded.
const Library* library(std::string* why);

}  // namespace rehearse::exec::cuda::cudnn
