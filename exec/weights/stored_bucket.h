// SPDX-License-Identifier: Apache-2.0
// Parameters and optimizer state as a rank stores them: where they lie, and copies to and from the
// host in fp32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/backend/device.h"
#include "schedules/ir/schedule.h"
#include "schedules/model/optimizer.h"

namespace rehearse::exec {

// Elements [first, last) of a bucket as one rank holds them, and [own_first, own_last) of these
// whose newest value and optimizer state it has. Addresses are the backend's.
struct StoredBucket {
  std::int32_t rank = 0;  // global number
  BucketId bucket{};
  std::int64_t first = 0, last = 0;
  std::int64_t own_first = 0, own_last = 0;
  std::byte* parameter = nullptr;   // of [first, last)
  ElementType type{};               // of the parameters
  float* master = nullptr;          // of [own_first, own_last); nullptr: the parameter is fp32
  std::array<float*, 2> moments{};  // of [own_first, own_last); nullptr: there is none
};

// Copies go in parts of at most so many elements: no second copy of the weights comes into being.
inline constexpr std::int64_t kPartElements = 1 << 16;

// Calls visit(begin, end) for the parts of [first, last), in order.
template <class Visit>
void for_each_part(std::int64_t first, std::int64_t last, const Visit& visit) {
  for (std::int64_t begin = first; begin < last; begin += kPartElements) {
    visit(begin, begin + kPartElements < last ? begin + kPartElements : last);
  }
}

// values: of the bucket's elements from `begin` on, within [first, last). Rounds to nearest even
// where the parameters have 16 bits; sets the master too.
void write_parameters(Device& device, const StoredBucket& stored, std::int64_t begin,
                      std::span<const float> values);
// Reads elements [begin, end), within [own_first, own_last): the master's where there is one, else
// what is stored, of any type.
std::vector<float> read_parameters(Device& device, const StoredBucket& stored, std::int64_t begin,
                                   std::int64_t end);
// `state`: one of stored.moments; likewise.
std::vector<float> read_state(Device& device, const StoredBucket& stored, const float* state,
                              std::int64_t begin, std::int64_t end);
void write_state(Device& device, const StoredBucket& stored, float* state, std::int64_t begin,
                 const std::vector<float>& values);
void clear_state(Device& device, const StoredBucket& stored);

// Where the arrays of an optimizer's state lie: [master,] then its moments, `count` elements each.
struct StateArrays {
  float* master = nullptr;  // nullptr: the parameter is fp32
  std::array<float*, 2> moments{};
};
// `bytes`: of the whole state, which tell whether there is a master copy.
StateArrays state_arrays(float* state, std::int64_t bytes, std::int64_t count,
                         const OptimizerRow& optimizer);

}  // namespace rehearse::exec
