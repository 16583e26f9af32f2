// SPDX-License-Identifier: Apache-2.0
// A shard of parameters on its way in 8 bit (schedules/scenario/zero/quantized_gather.h), computed
// by the host: values, then a scale for every block. Blocks begin with every tensor of the bucket,
// at multiples of 256 in it, and with the shard: which layout has the shard does not matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "exec/step/rank_state.h"
#include "exec/weights/stored_bucket.h"

namespace rehearse::exec {

// Ends of the blocks of elements [begin, end) of a bucket, counted from `begin`.
std::vector<std::int64_t> gather_blocks(const LocalRanks& local, BucketId bucket,
                                        std::int64_t begin, std::int64_t end);

// q = round(127 x / m) with m the largest |x| of the block: at most m / 254 away. What is no number
// makes its block none. `to`: values.size() bytes and a float for every block.
void quantize(std::span<const std::int64_t> ends, std::span<const float> values, std::byte* to);
void dequantize(std::span<const std::int64_t> ends, const std::byte* from, std::span<float> values);

// A shard of fp32 at `from` on the device, packed at `to`; and one that came, of elements from
// `begin` of the bucket on, to its place. `ends`: of its blocks. Times of both: `calibrate`.
void pack_values(Device& device, std::span<const std::int64_t> ends, const std::byte* from,
                 std::int64_t values, std::byte* to, std::int64_t bytes);
void unpack_values(Device& device, std::span<const std::int64_t> ends, const std::byte* from,
                   std::int64_t bytes, const StoredBucket& to, std::int64_t begin,
                   std::int64_t values);

// Before an UNSHARD its shard is quantized into the op's workspace, behind it what all have brought
// there becomes what the op writes. `member`: of the group, of which there are so many.
void pack_shard(const LocalRanks& local, const RankState& rank, OpId unshard, std::int32_t member,
                std::int32_t members);
void unpack_shards(const LocalRanks& local, const RankState& rank, OpId unshard,
                   std::int32_t members);
// The op's workspace.
ValueId quantized_room(const Schedule& schedule, OpId unshard);

}  // namespace rehearse::exec
