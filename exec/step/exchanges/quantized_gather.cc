// SPDX-License-Identifier: Apache-2.0
#include "exec/step/exchanges/quantized_gather.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "schedules/scenario/zero/quantized_gather.h"

namespace rehearse::exec {
namespace {

// One member's part of an UNSHARD.
struct QuantizedPart {
  std::int64_t begin = 0, end = 0;  // of the bucket
  std::int64_t bytes = 0;           // quantized
  std::vector<std::int64_t> ends;

  QuantizedPart(const LocalRanks& local, OpId unshard, std::int32_t member, std::int32_t members) {
    const BucketId id = local.schedule.ops[unshard.index()].bucket;
    const Bucket& bucket = local.schedule.buckets[id.index()];
    const std::int64_t values = bucket.padded / members;
    begin = member * values;
    end = begin + values;
    bytes = quantized_bytes(local.plan, values, bucket.tensors);
    ends = gather_blocks(local, id, begin, end);
  }
};

}  // namespace

ValueId quantized_room(const Schedule& schedule, OpId unshard) {
  for (const Operand& operand : schedule.operands_of(unshard)) {
    if (operand.access == Access::Workspace) return operand.value;
  }
  return {};
}

std::vector<std::int64_t> gather_blocks(const LocalRanks& local, BucketId bucket,
                                        std::int64_t begin, std::int64_t end) {
  std::set<std::int64_t> starts{0};  // of tensors, and of the padding
  for (const TensorPlace& place : local.places) {
    if (place.bucket != bucket) continue;
    starts.insert(place.offset);
    starts.insert(place.offset + place.what.elements);
  }
  std::vector<std::int64_t> ends;
  for (auto start = starts.begin(); start != starts.end(); ++start) {
    const std::int64_t from = *start,
                       to = std::next(start) == starts.end() ? end : *std::next(start);
    // The first block that ends behind `begin`.
    const std::int64_t skipped = std::max<std::int64_t>(begin - from, 0) / kGatherBlock;
    for (std::int64_t at = from + skipped * kGatherBlock; at < std::min(to, end);
         at += kGatherBlock) {
      const std::int64_t block_end = std::min({at + kGatherBlock, to, end});
      if (block_end > begin) ends.push_back(block_end - begin);
    }
  }
  return ends;
}

void quantize(std::span<const std::int64_t> ends, std::span<const float> values, std::byte* to) {
  auto* const quantized = reinterpret_cast<std::int8_t*>(to);
  std::byte* scales = to + values.size();
  std::size_t at = 0;
  for (const std::int64_t block_end : ends) {
    const auto end = static_cast<std::size_t>(block_end);
    float largest = 0;
    bool numbers = true;
    for (std::size_t i = at; i < end; ++i) {
      largest = std::max(largest, std::abs(values[i]));
      numbers &= std::isfinite(values[i]);
    }
    const float scale = numbers ? largest / 127 : std::nanf("");
    for (; at < end; ++at) {
      const bool some = numbers && scale > 0;
      quantized[at] = some ? static_cast<std::int8_t>(std::lrintf(values[at] / scale)) : 0;
    }
    std::memcpy(scales, &scale, sizeof(scale));
    scales += sizeof(scale);
  }
}

void dequantize(std::span<const std::int64_t> ends, const std::byte* from,
                std::span<float> values) {
  const auto* const quantized = reinterpret_cast<const std::int8_t*>(from);
  const std::byte* scales = from + values.size();
  std::size_t at = 0;
  for (const std::int64_t end : ends) {
    float scale = 0;
    std::memcpy(&scale, scales, sizeof(scale));
    scales += sizeof(scale);
    for (; at < static_cast<std::size_t>(end); ++at) {
      values[at] = static_cast<float>(quantized[at]) * scale;
    }
  }
}

void pack_values(Device& device, std::span<const std::int64_t> ends, const std::byte* from,
                 std::int64_t values, std::byte* to, std::int64_t bytes) {
  std::vector<float> shard(static_cast<std::size_t>(values));
  std::vector<std::byte> packed(static_cast<std::size_t>(bytes));
  device.read(shard.data(), from, 4 * values);
  quantize(ends, shard, packed.data());
  device.write(to, packed.data(), bytes);
}

void unpack_values(Device& device, std::span<const std::int64_t> ends, const std::byte* from,
                   std::int64_t bytes, const StoredBucket& to, std::int64_t begin,
                   std::int64_t values) {
  std::vector<float> part(static_cast<std::size_t>(values));
  std::vector<std::byte> packed(static_cast<std::size_t>(bytes));
  device.read(packed.data(), from, bytes);
  dequantize(ends, packed.data(), part);
  write_parameters(device, to, begin, part);
}

void pack_shard(const LocalRanks& local, const RankState& rank, OpId unshard, std::int32_t member,
                std::int32_t members) {
  const QuantizedPart part(local, unshard, member, members);
  pack_values(local.device, part.ends,
              local.address(rank, local.schedule.operands_of(unshard)[0].value),
              part.end - part.begin,
              local.address(rank, quantized_room(local.schedule, unshard)) + member * part.bytes,
              part.bytes);
}

void unpack_shards(const LocalRanks& local, const RankState& rank, OpId unshard,
                   std::int32_t members) {
  const std::byte* room = local.address(rank, quantized_room(local.schedule, unshard));
  const Operand& whole = local.schedule.operands_of(unshard)[1];
  const StoredBucket to{.parameter = local.address(rank, whole.value),
                        .type = local.type_of(local.schedule.values[whole.value.index()])};
  for (std::int32_t member = 0; member < members; ++member) {
    const QuantizedPart part(local, unshard, member, members);
    unpack_values(local.device, part.ends, room + member * part.bytes, part.bytes, to, part.begin,
                  part.end - part.begin);
  }
}

}  // namespace rehearse::exec
