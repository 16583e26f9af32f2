// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/program_hash.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "schedules/ir/stage_index.h"

namespace rehearse {
namespace {

// The finalizer of MurmurHash3: every bit of the number changes half of the result's.
constexpr std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

class Mix {
 public:
  void add(std::int64_t number) {
    hash_ = mixed(hash_ * 0x9e3779b97f4a7c15ULL + static_cast<std::uint64_t>(number));
  }
  std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0x2545f4914f6cdd1dULL;
};

// The numbers of one row, one op after another.
class Row {
 public:
  explicit Row(const Schedule& schedule)
      : s_(schedule),
        instances_(kNumOpKinds * (schedule.buckets.size() + 1), -1),
        gathers_(kNumValueKinds * (schedule.buckets.size() + 1), -1),
        on_stream_(schedule.ops.size()) {}

  void begin() {
    last_ = {-1, -1};
    std::ranges::fill(instances_, -1);
    std::ranges::fill(gathers_, -1);
    std::ranges::fill(on_streams_, 0);
  }

  std::uint64_t next(OpId id) {
    const Op& op = s_.ops[id.index()];
    Mix mix;
    mix.add((static_cast<std::int64_t>(op.kind) << 40) +
            (static_cast<std::int64_t>(op.stream) << 32) +
            (static_cast<std::int64_t>(op.payload) << 24) + op.slice);
    mix.add((static_cast<std::int64_t>(op.segment_begin) << 32) + op.segment_end);
    mix.add((static_cast<std::int64_t>(op.stage.value) << 32) + op.bucket.value);
    mix.add((static_cast<std::int64_t>(op.peer.value) << 32) + op.group.value);
    mix.add(since_last(op.microbatch));
    if (op.instance >= 0 && is_of_gradients(op.kind)) {
      mix.add(from_last({op.instance}));
    } else if (op.instance >= 0) {
      mix.add(since_last(op.instance, instances_, static_cast<std::size_t>(op.kind), op.bucket));
    }
    if (op.kind == OpKind::Overlap) {
      for (const Op& child : work_of(s_, op)) {
        mix.add((static_cast<std::int64_t>(child.kind) << 40) + child.stage.value);
        mix.add(since_last(child.microbatch));
      }
    }
    for (const Operand& operand : s_.operands_of(id)) add(mix, operand);
    for (const OpId& wait : s_.waits_of(id)) {
      const auto stream = static_cast<std::size_t>(s_.ops[wait.index()].stream);
      const auto w = static_cast<std::size_t>(&wait - s_.waits.data());
      mix.add((std::int64_t{on_streams_[stream] - on_stream_[wait.index()]} << 8) +
              static_cast<std::int64_t>(stream) * 2 +
              (w < s_.wait_is_reuse.size() ? s_.wait_is_reuse[w] : 0));
    }
    on_stream_[id.index()] = on_streams_[static_cast<std::size_t>(op.stream)]++;
    return mix.value();
  }

 private:
  // Whose instance is a micro-batch (op.h).
  static bool is_of_gradients(OpKind kind) {
    return kind == OpKind::Add ||
           (traits(kind).op_class == OpClass::Collective && kind != OpKind::Unshard);
  }
  // Counted within its direction, whose first one depends on how many there are.
  std::int64_t from_last(Microbatch microbatch) const {
    if (!microbatch) return -1;
    const std::size_t up = direction(microbatch);
    return 2 * (std::int64_t{number(microbatch)} - last_[up]) + static_cast<std::int64_t>(up);
  }
  std::int64_t since_last(Microbatch microbatch) {
    const std::int64_t since = from_last(microbatch);
    if (microbatch) last_[direction(microbatch)] = number(microbatch);
    return since;
  }
  std::size_t direction(Microbatch microbatch) const {
    return !s_.placement.up.empty() && microbatch.value >= s_.placement.first_up ? 1 : 0;
  }
  std::int32_t number(Microbatch microbatch) const {
    return microbatch.value - (direction(microbatch) == 1 ? s_.placement.first_up : 0);
  }

  // Numbered per bucket and what it is of.
  std::int64_t since_last(std::int32_t instance, std::vector<std::int32_t>& all, std::size_t of,
                          BucketId bucket) const {
    std::int32_t& last =
        all[of * (s_.buckets.size() + 1) + static_cast<std::size_t>(bucket.value + 1)];
    return std::int64_t{instance} - std::exchange(last, instance);
  }

  // A value by what it is, not by its number.
  void add(Mix& mix, const Operand& operand) {
    const Value& value = s_.values[operand.value.index()];
    mix.add((static_cast<std::int64_t>(value.kind) << 8) +
            (static_cast<std::int64_t>(operand.access) << 4) +
            static_cast<std::int64_t>(value.home) * 4 + (value.persistent ? 2 : 0) +
            (value.shard ? 1 : 0));
    mix.add(value.bytes.value);
    mix.add((std::int64_t{value.segment_begin} << 32) + value.segment_end);
    mix.add((std::int64_t{value.stage.value} << 32) + value.bucket.value);
    mix.add(from_last(value.microbatch));
    if (value.instance >= 0) {
      mix.add(value.bucket ? since_last(value.instance, gathers_,
                                        static_cast<std::size_t>(value.kind), value.bucket)
                           : value.instance);
    }
  }

  const Schedule& s_;
  std::array<std::int32_t, 2> last_{};   // micro-batch, per direction
  std::vector<std::int32_t> instances_;  // the last, by kind and bucket
  std::vector<std::int32_t> gathers_;    // of values, by kind and bucket
  std::vector<std::int32_t> on_stream_;  // per op: how many stand before it there
  std::array<std::int32_t, kNumStreams> on_streams_{};
};

// Strings over numbers: the value of a polynomial at one point, and the point to the power of the
// length. Modulo the prime 2^61 - 1.
constexpr std::uint64_t kPrime = (std::uint64_t{1} << 61) - 1;
constexpr std::uint64_t kPoint = 0x123456789abcdefULL;

__extension__ using Wide = unsigned __int128;

std::uint64_t times(std::uint64_t a, std::uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  const std::uint64_t sum =
      static_cast<std::uint64_t>(product & kPrime) + static_cast<std::uint64_t>(product >> 61);
  return sum >= kPrime ? sum - kPrime : sum;
}
std::uint64_t plus(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t sum = a + b;
  return sum >= kPrime ? sum - kPrime : sum;
}

struct Word {
  std::uint64_t value = 0, power = 1;
  void add(std::uint64_t number) {
    value = plus(times(value, kPoint), number % kPrime);
    power = times(power, kPoint);
  }
  void add(const Word& other) {
    value = plus(times(value, other.power), other.value);
    power = times(power, other.power);
  }
};

Word repeated_word(Word part, std::int64_t more) {
  Word whole;
  for (; more > 0; more >>= 1) {
    if ((more & 1) != 0) whole.add(part);
    part.add(Word(part));
  }
  return whole;
}

}  // namespace

std::vector<std::uint64_t> relative_ops(const Schedule& schedule) {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(schedule.ops.size());
  Row row(schedule);
  for (std::int32_t r = 0; r < schedule.num_rows(); ++r) {
    row.begin();
    for (std::int32_t i = schedule.row_begin[static_cast<std::size_t>(r)];
         i < schedule.row_begin[static_cast<std::size_t>(r) + 1]; ++i) {
      numbers.push_back(row.next({i}));
    }
  }
  return numbers;
}

std::string program_hash(const Schedule& schedule, std::span<const std::uint64_t> relative,
                         std::span<const RepeatedOps> repeated) {
  Mix shape;
  shape.add(static_cast<std::int64_t>(schedule.level));
  shape.add(schedule.microbatches);
  shape.add(schedule.slices);
  for (const auto* stages : {&schedule.placement.down, &schedule.placement.up}) {
    shape.add(static_cast<std::int64_t>(stages->size()));
    for (const Position position : *stages) shape.add(position.value);
  }
  shape.add(schedule.placement.first_up);
  for (const RankClassInfo& row : schedule.rows) {
    shape.add(row.position.value);
    shape.add(row.data_begin);
    shape.add(row.data_end);
  }
  for (const Group& group : schedule.groups) {
    for (const char c : group.name()) shape.add(c);
    shape.add(group.size);
    if (group.kind != GroupKind::Other) continue;
    for (const RankClass row : group.rows) shape.add(row.value);
  }
  for (const Bucket& bucket : schedule.buckets) {
    shape.add(bucket.partial);
    shape.add(bucket.padded);
  }
  Word all;
  all.add(shape.value());
  for (std::size_t r = 0; r + 1 < schedule.row_begin.size(); ++r) {
    const RepeatedOps part = repeated.empty() ? RepeatedOps{} : repeated[r];
    all.add(r + 1);  // so that rows do not run into one another
    for (std::int32_t i = schedule.row_begin[r]; i < schedule.row_begin[r + 1]; ++i) {
      all.add(relative[static_cast<std::size_t>(i)]);
      if (part.more == 0 || i + 1 != part.end) continue;
      Word block;
      for (std::int32_t k = part.begin; k < part.end; ++k) {
        block.add(relative[static_cast<std::size_t>(k)]);
      }
      all.add(repeated_word(block, part.more));
    }
  }
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  std::uint64_t rest = mixed(all.value);
  for (std::size_t i = 16; i-- > 0; rest >>= 4) text[i] = kDigits[rest & 15];
  return text;
}

}  // namespace rehearse
