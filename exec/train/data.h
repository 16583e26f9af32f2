// SPDX-License-Identifier: Apache-2.0
// Training samples: numbered over the whole run, so that every layout sees the same batches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/train/token_file.h"
#include "schedules/base/result.h"
#include "schedules/scenario/plan.h"

namespace rehearse::exec {

// Tokens of a file, given ones, or a seeded generator.
class Data {
 public:
  // `source`: "synthetic", or a file (token_file.h).
  // Errors: what the file lacks, or a token that the vocabulary does not hold.
  static Result<Data> open(const std::string& source, std::int64_t vocabulary, std::int64_t seed);
  // Given tokens, in order, sequence + 1 per sample (tests).
  static Data of_tokens(std::vector<std::int32_t> tokens);

  // Sample `number` (0, 1, ...): inputs (sequence) and targets (sequence), the next tokens. Files
  // are read front to back in steps of `sequence` and start again at the end.
  void sample(std::int64_t number, std::int64_t sequence, std::int32_t* inputs,
              std::int32_t* targets) const;

 private:
  TokenFile file_;
  std::vector<std::int32_t> tokens_;  // of_tokens: samples do not overlap
  std::int64_t vocabulary_ = 0;       // synthetic
  std::uint64_t seed_ = 0;
};

}  // namespace rehearse::exec
