// SPDX-License-Identifier: Apache-2.0
#include "exec/weights/stored_bucket.h"

#include <algorithm>

#include "exec/backend/element.h"

namespace rehearse::exec {
namespace {

template <class T>
void write_rounded(Device& device, std::byte* to, std::span<const float> values) {
  const std::vector<T> rounded(values.begin(), values.end());
  device.write(to, rounded.data(), static_cast<std::int64_t>(values.size() * sizeof(T)));
}

template <class T>
std::vector<float> read_rounded(Device& device, const StoredBucket& stored, std::int64_t begin,
                                std::int64_t end) {
  std::vector<T> rounded(static_cast<std::size_t>(end - begin));
  device.read(rounded.data(), stored.parameter + 2 * (begin - stored.first), 2 * (end - begin));
  return {rounded.begin(), rounded.end()};
}

std::byte* bytes(float* data) {
  return reinterpret_cast<std::byte*>(data);
}
std::int64_t own_bytes(const StoredBucket& s) {
  return 4 * (s.own_last - s.own_first);
}

}  // namespace

void write_parameters(Device& device, const StoredBucket& stored, std::int64_t begin,
                      std::span<const float> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t to = begin - stored.first;
  if (stored.type == ElementType::Float32) {
    device.write(stored.parameter + 4 * to, values.data(), 4 * count);
  } else if (stored.type == ElementType::Float16) {
    write_rounded<Float16>(device, stored.parameter + 2 * to, values);
  } else {
    write_rounded<BFloat16>(device, stored.parameter + 2 * to, values);
  }
  const std::int64_t own = std::max(begin, stored.own_first),
                     own_end = std::min(begin + count, stored.own_last);
  if (stored.master == nullptr || own >= own_end) return;
  device.write(bytes(stored.master + (own - stored.own_first)), values.data() + (own - begin),
               4 * (own_end - own));
}

std::vector<float> read_parameters(Device& device, const StoredBucket& stored, std::int64_t begin,
                                   std::int64_t end) {
  if (stored.master == nullptr && stored.type == ElementType::BFloat16) {
    return read_rounded<BFloat16>(device, stored, begin, end);
  }
  if (stored.master == nullptr && stored.type == ElementType::Float16) {
    return read_rounded<Float16>(device, stored, begin, end);
  }
  std::vector<float> values(static_cast<std::size_t>(end - begin));
  const std::byte* from = stored.master != nullptr
                              ? bytes(stored.master + (begin - stored.own_first))
                              : stored.parameter + 4 * (begin - stored.first);
  device.read(values.data(), from, 4 * (end - begin));
  return values;
}

std::vector<float> read_state(Device& device, const StoredBucket& stored, const float* state,
                              std::int64_t begin, std::int64_t end) {
  std::vector<float> values(static_cast<std::size_t>(end - begin));
  device.read(values.data(), reinterpret_cast<const std::byte*>(state + (begin - stored.own_first)),
              4 * (end - begin));
  return values;
}

void write_state(Device& device, const StoredBucket& stored, float* state, std::int64_t begin,
                 const std::vector<float>& values) {
  device.write(bytes(state + (begin - stored.own_first)), values.data(),
               4 * static_cast<std::int64_t>(values.size()));
}

void clear_state(Device& device, const StoredBucket& stored) {
  constexpr std::int64_t kPiece = 1 << 16;
  const std::vector<std::byte> zeros(static_cast<std::size_t>(kPiece));
  for (float* state : stored.moments) {
    if (state == nullptr) continue;
    for (std::int64_t at = 0; at < own_bytes(stored); at += kPiece) {
      device.write(bytes(state) + at, zeros.data(), std::min(kPiece, own_bytes(stored) - at));
    }
  }
}

StateArrays state_arrays(float* state, std::int64_t bytes, std::int64_t count,
                         const OptimizerRow& optimizer) {
  const auto moments = static_cast<std::int64_t>(num_moments(optimizer));
  const bool has_master = bytes >= 4 * (1 + moments) * count;
  StateArrays arrays{.master = has_master ? state : nullptr};
  for (std::int64_t i = 0; i < moments; ++i) {
    arrays.moments[static_cast<std::size_t>(i)] = state + ((has_master ? 1 : 0) + i) * count;
  }
  return arrays;
}

}  // namespace rehearse::exec
