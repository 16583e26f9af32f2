// SPDX-License-Identifier: Apache-2.0
// Of a build without cuDNN's headers.
#include "exec/cuda/cudnn/attention.h"

namespace rehearse::exec::cuda {

struct CudnnAttention::Plans {
  std::string why;
};

CudnnAttention::CudnnAttention(std::unique_ptr<Plans> plans) : plans_(std::move(plans)) {}
CudnnAttention::~CudnnAttention() = default;

std::string CudnnAttention::version() {
  return "no cuDNN";
}
std::unique_ptr<CudnnAttention> CudnnAttention::open(std::string* why) {
  *why = "this build is without it: its headers were not there";
  return nullptr;
}
bool CudnnAttention::takes(Type, const AttentionShape&) {
  return false;
}
Result<std::int64_t> CudnnAttention::prepare(bool, Type, const AttentionShape&) {
  return Error{"there is no cuDNN"};
}
int CudnnAttention::forward(Stream, Type, const AttentionShape&, const void*, void*, float*,
                            void*) {
  return 801;  // cudaErrorNotSupported
}
int CudnnAttention::backward(Stream, Type, const AttentionShape&, const void*, const void*,
                             const void*, const float*, void*, float*, void*) {
  return 801;
}
const std::string& CudnnAttention::why() const {
  return plans_->why;
}

}  // namespace rehearse::exec::cuda
