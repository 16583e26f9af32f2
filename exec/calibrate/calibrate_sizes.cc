// SPDX-License-Identifier: Apache-2.0
// Which sizes `calibrate` measures, on a CPU and on a GPU.
#include "exec/calibrate/calibrate.h"

namespace rehearse::exec {

CalibrateSizes CalibrateSizes::cpu(bool quick) {
  CalibrateSizes sizes{.tokens = {16, 32, 64, 128, 256, 512},
                       .features = {32, 64, 128, 256, 512, 1024, 2048, 3072},
                       .bytes = {16 << 10, 32 << 20, 4},
                       .sequence = {32, 2048, 2},
                       .exchanged = {256, 4 << 20, 8},
                       // For one core.
                       .cold_bytes = 64 << 20,
                       .repetitions = 5,
                       .scheduler_steps = 51,
                       .seconds = 3e-3,
                       .together_seconds = 1};
  if (!quick) return sizes;
  sizes.tokens = {16, 64, 256};
  sizes.features = {32, 128, 512, 2048};
  sizes.bytes = {16 << 10, 4 << 20, 16};
  sizes.sequence = {32, 512, 4};
  sizes.exchanged = {256, 1 << 20, 64};
  sizes.repetitions = 3;
  sizes.scheduler_steps = 15;
  sizes.seconds = 0.5e-3;
  sizes.together_seconds = 0.1;
  return sizes;
}

CalibrateSizes CalibrateSizes::gpu(bool quick) {
  CalibrateSizes sizes{.tokens = {512, 2048, 8192, 32768},
                       .features = {256, 768, 1600, 4096, 8192},
                       .columns = 1024,
                       .vocabulary = 50304,
                       .bytes = {256 << 10, 256 << 20, 4},
                       .sequence = {256, 8192, 2},
                       .heads = 16,
                       .attention_tokens = 8192,
                       .exchanged = {1 << 10, 64 << 20, 8},
                       .copied = {64 << 10, 256 << 20, 16},
                       // The second-level cache of an H200 is 50 MiB.
                       .cold_bytes = 512 << 20,
                       .repetitions = 5,
                       .seconds = 2e-3};
  if (!quick) return sizes;
  sizes.tokens = {1024, 8192};
  sizes.features = {768, 3072};
  sizes.bytes = {1 << 20, 256 << 20, 16};
  sizes.sequence = {512, 2048, 4};
  sizes.exchanged = {1 << 14, 16 << 20, 32};
  sizes.repetitions = 3;
  sizes.seconds = 0.5e-3;
  return sizes;
}

}  // namespace rehearse::exec
