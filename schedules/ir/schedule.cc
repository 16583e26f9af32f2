// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/schedule.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "schedules/ir/payload.h"

namespace rehearse {
namespace {

class Fnv1a {
 public:
  void add(const void* data, std::size_t size) {
    const auto* byte = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < size; ++i) hash_ = (hash_ ^ byte[i]) * 0x100000001b3ULL;
  }
  void add(std::int64_t number) { add(&number, sizeof number); }
  void add(std::string_view text) {
    add(static_cast<std::int64_t>(text.size()));
    add(text.data(), text.size());
  }
  // Ops are hashed a word at a time: a schedule has a million of them.
  void add_words(const void* data, std::size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i + 8 <= size; i += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes + i, 8);
      hash_ = (hash_ ^ word) * 0x100000001b3ULL;
      hash_ ^= hash_ >> 29;
    }
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

void add_ops(Fnv1a& hash, const std::vector<Op>& ops) {
  hash.add(static_cast<std::int64_t>(ops.size()));
  for (Op op : ops) {
    op.key = 0;  // a hint of the order, which the positions already say
    hash.add_words(&op, sizeof op);
  }
}

}  // namespace

RankClass Schedule::row_of(OpId id) const {
  const auto after = std::upper_bound(row_begin.begin(), row_begin.end(), id.value);
  return {static_cast<std::int32_t>(after - row_begin.begin()) - 1};
}

GroupId Schedule::group(GroupKind kind) const {
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].kind == kind) return {static_cast<std::int32_t>(g)};
  }
  return {};
}

std::string content_hash(const Schedule& schedule) {
  Fnv1a hash;
  hash.add(static_cast<std::int64_t>(schedule.level));
  hash.add(schedule.microbatches);
  hash.add(schedule.slices);
  add_ops(hash, schedule.ops);
  add_ops(hash, schedule.children);
  for (const std::int32_t begin : schedule.row_begin) hash.add(begin);
  for (const auto* stages : {&schedule.placement.down, &schedule.placement.up}) {
    hash.add(static_cast<std::int64_t>(stages->size()));
    for (const Position position : *stages) hash.add(position.value);
  }
  hash.add(schedule.placement.first_up);
  for (const OpId wait : schedule.waits) hash.add(wait.value);
  for (const RankClassInfo& row : schedule.rows) {
    hash.add(row.position.value);
    hash.add(row.data_begin);
    hash.add(row.data_end);
  }
  for (const Group& group : schedule.groups) {
    hash.add(group.name());
    hash.add(group.size);
    if (group.kind != GroupKind::Other) continue;
    for (const RankClass row : group.rows) hash.add(row.value);
  }
  for (std::int32_t id = 0; id < schedule.num_ops(); ++id) {  // what nothing else says
    if (!schedule.is_on(schedule.ops[static_cast<std::size_t>(id)], GroupKind::Other)) continue;
    hash.add(payload_of(schedule, {id}).bytes());
  }
  for (const Bucket& bucket : schedule.buckets) {
    hash.add(bucket.partial);
    hash.add(bucket.padded);
  }
  for (const Value& value : schedule.values) {
    hash.add(static_cast<std::int64_t>(value.kind));
    hash.add(value.bytes.value);
    hash.add(value.offset.value);
  }
  for (const Operand& operand : schedule.operands) {
    hash.add(operand.value.value);
    hash.add(static_cast<std::int64_t>(operand.access) * 65536 + operand.version);
  }
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  std::uint64_t rest = hash.value();
  for (std::size_t i = 16; i-- > 0; rest >>= 4) text[i] = kDigits[rest & 15];
  return text;
}

}  // namespace rehearse
