// SPDX-License-Identifier: Apache-2.0
#include "exec/train/data.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "schedules/base/json_reader.h"
#include "schedules/base/random.h"

namespace rehearse::exec {
namespace {

constexpr std::int32_t kBinMagic = 20240520, kBinVersion = 1;  // llm.c, dev/data/data_common.py
constexpr std::size_t kBinHeader = 256;                        // int32 words

Result<std::vector<std::int32_t>> read_bin(const std::string& path, const std::string& bytes) {
  std::int32_t header[kBinHeader];
  if (bytes.size() < sizeof header) return Error{path + ": too short for a token file's header"};
  std::memcpy(header, bytes.data(), sizeof header);
  if (header[0] != kBinMagic || header[1] != kBinVersion) {
    return Error{path + ": not a token file of llm.c (magic 20240520, version 1)"};
  }
  const auto count = static_cast<std::size_t>(std::max(header[2], 0));
  if (bytes.size() != sizeof header + 2 * count) {
    return Error{path + ": holds " + std::to_string((bytes.size() - sizeof header) / 2) +
                 " tokens, its header says " + std::to_string(count)};
  }
  std::vector<std::int32_t> tokens(count);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t token = 0;
    std::memcpy(&token, bytes.data() + sizeof header + 2 * i, 2);
    tokens[i] = token;
  }
  return tokens;
}

}  // namespace

Result<Data> Data::open(const std::string& source, std::int64_t vocabulary, std::int64_t seed) {
  Data data;
  data.vocabulary_ = vocabulary;
  data.seed_ = static_cast<std::uint64_t>(seed);
  if (source == "synthetic") return data;
  // As text and as tokens of four bytes each.
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  const std::int64_t most =
      pages > 0 && page > 0 ? std::int64_t{pages} * page / 5 : std::int64_t{1} << 33;
  const Result<std::string> read = read_text_file(source, most);
  if (!read) return read.error();
  const std::string& bytes = read.value();
  if (source.ends_with(".bin")) {
    Result<std::vector<std::int32_t>> tokens = read_bin(source, bytes);
    if (!tokens) return tokens.error();
    data.tokens_ = std::move(tokens).value();
  } else {
    data.tokens_.reserve(bytes.size());
    for (const char byte : bytes) data.tokens_.push_back(static_cast<unsigned char>(byte));
  }
  if (data.tokens_.size() < 2) return Error{source + ": holds no two tokens"};
  const std::int32_t largest = *std::max_element(data.tokens_.begin(), data.tokens_.end());
  if (largest >= vocabulary) {
    return Error{source + ": token " + std::to_string(largest) + " is not in the vocabulary of " +
                 std::to_string(vocabulary)};
  }
  return data;
}

Data Data::of_tokens(std::vector<std::int32_t> tokens) {
  Data data;
  data.tokens_ = std::move(tokens);
  data.given_ = true;
  return data;
}

void Data::sample(std::int64_t number, std::int64_t sequence, std::int32_t* inputs,
                  std::int32_t* targets) const {
  const auto token = [&](std::int64_t at) -> std::int32_t {
    if (tokens_.empty()) {
      // A ramp with noise: learnable, and the same for every layout.
      const std::uint64_t noise = split_mix(seed_, static_cast<std::uint64_t>(at)) >> 33;
      const auto v = static_cast<std::uint64_t>(vocabulary_);
      const std::uint64_t ramp = static_cast<std::uint64_t>(at) % v;
      return static_cast<std::int32_t>(noise % 4 == 0 ? noise % v : ramp);
    }
    return tokens_[static_cast<std::size_t>(at % static_cast<std::int64_t>(tokens_.size()))];
  };
  const std::int64_t first = number * (given_ ? sequence + 1 : sequence);
  for (std::int64_t i = 0; i < sequence; ++i) {
    inputs[i] = token(first + i);
    targets[i] = token(first + i + 1);
  }
}

}  // namespace rehearse::exec
