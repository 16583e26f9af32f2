// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_double/engines.h"

#include <optional>

namespace rehearse::cuda_double {
namespace {

thread_local std::optional<exec::cuda::AttentionEngine> faster;

}  // namespace

void prefer(exec::cuda::AttentionEngine engine) {
  faster = engine;
}
bool slower(exec::cuda::AttentionEngine engine) {
  return faster.value_or(engine) != engine;
}

}  // namespace rehearse::cuda_double
