// SPDX-License-Identifier: Apache-2.0
// In the place of exec/calibrate/calibrate_sizes.cc: what the double, whose kernels the CPU runs,
// measures in a moment, or in as many as a test wants.
#include <cstdlib>

#include "exec/calibrate/calibrate.h"

namespace rehearse::exec {

CalibrateSizes CalibrateSizes::gpu(bool) {
  const char* repetitions = std::getenv("REHEARSE_DOUBLE_REPETITIONS");
  return {.tokens = {16, 32},
          .features = {8, 16},
          .columns = 16,
          .vocabulary = 64,
          .bytes = {1 << 10, 4 << 10, 4},
          .sequence = {16, 32, 2},
          .heads = 2,
          .attention_tokens = 32,
          .exchanged = {64, 256, 4},
          .copied = {1 << 10, 4 << 10, 4},
          .cold_bytes = 1 << 16,
          .repetitions = repetitions == nullptr ? 2 : std::atoi(repetitions),
          .seconds = 1e-5};
}
CalibrateSizes CalibrateSizes::cpu(bool quick) {
  return gpu(quick);
}

}  // namespace rehearse::exec
