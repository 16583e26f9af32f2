// SPDX-License-Identifier: Apache-2.0
#include "exec/train/data.h"

#include <utility>

#include "schedules/base/random.h"

namespace rehearse::exec {

Result<Data> Data::open(const std::string& source, std::int64_t vocabulary, std::int64_t seed) {
  Data data;
  data.vocabulary_ = vocabulary;
  data.seed_ = static_cast<std::uint64_t>(seed);
  if (source == "synthetic") return data;
  Result<TokenFile> file = TokenFile::open(source);
  if (!file) return file.error();
  data.file_ = std::move(file).value();
  if (data.file_.size() < 2) return Error{source + ": holds no two tokens"};
  // Where the vocabulary holds every token of that size, none need be looked at.
  const bool any = vocabulary >= std::int64_t{1} << 8 * data.file_.token_bytes();
  const std::int64_t largest = any ? 0 : data.file_.largest();
  if (largest >= vocabulary) {
    return Error{source + ": token " + std::to_string(largest) + " is not in the vocabulary of " +
                 std::to_string(vocabulary)};
  }
  return data;
}

Data Data::of_tokens(std::vector<std::int32_t> tokens) {
  Data data;
  data.tokens_ = std::move(tokens);
  return data;
}

void Data::sample(std::int64_t number, std::int64_t sequence, std::int32_t* inputs,
                  std::int32_t* targets) const {
  const auto token = [&](std::int64_t at) -> std::int32_t {
    if (file_.size() > 0) return static_cast<std::int32_t>(file_[at % file_.size()]);
    if (tokens_.empty()) {
      // A ramp with noise: learnable, and the same for every layout.
      const std::uint64_t noise = split_mix(seed_, static_cast<std::uint64_t>(at)) >> 33;
      const auto v = static_cast<std::uint64_t>(vocabulary_);
      const std::uint64_t ramp = static_cast<std::uint64_t>(at) % v;
      return static_cast<std::int32_t>(noise % 4 == 0 ? noise % v : ramp);
    }
    return tokens_[static_cast<std::size_t>(at % static_cast<std::int64_t>(tokens_.size()))];
  };
  const std::int64_t first = number * (tokens_.empty() ? sequence : sequence + 1);
  for (std::int64_t i = 0; i < sequence; ++i) {
    inputs[i] = token(first + i);
    targets[i] = token(first + i + 1);
  }
}

}  // namespace rehearse::exec
