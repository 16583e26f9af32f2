// SPDX-License-Identifier: Apache-2.0
// Versions, last uses, holds and the arena. A value counts as alive from the issue of the op that
// defines it until its last use on every stream is *estimated to have ended*, plus a margin where
// that use is on a communication stream: otherwise compute would wait for a neighbour only to reuse
// memory (docs/ir.md has the price).
#include <algorithm>
#include <span>

#include "schedules/body/arena.h"
#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

struct Use {
  std::int64_t end = 0;  // of all uses, estimated; streams are in order, so also over streams
  std::int32_t define = -1, last = -1, last_operand = -1;
  std::int16_t version = 0;
};

// How long beyond its place an op holds what it uses last. Estimates of a reduction are a constant
// that outlasts whole layers of a small model: what counts is that it hides behind the next layer's
// backward, so that the bucket of the one after that may take the memory.
std::int64_t held(const Op& op, std::int64_t duration, const Margins& margins) {
  if (op.stream == Stream::P2p) return duration + margins.transfers;
  if (op.stream == Stream::D2h && margins.copies > 0) return 2 * duration + margins.copies;
  if (op.stream != Stream::Dp || margins.reductions == 0) return duration;
  return std::min(duration, std::max<std::int64_t>(margins.reductions / 4, 1)) + margins.reductions;
}

// Versions on the operands, and what becomes of every value.
std::vector<Use> number_versions(Schedule& s, const Margins& margins,
                                 const std::vector<std::int64_t>& duration) {
  std::vector<Use> uses(s.values.size());
  for (std::int32_t i = 0; i < s.num_ops(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Op& op = s.ops[at];
    const std::int64_t ended = op.key + held(op, duration[at], margins);
    const std::int32_t end = s.operand_begin[at + 1];
    for (std::int32_t k = s.operand_begin[at]; k < end; ++k) {
      Operand& operand = s.operands[static_cast<std::size_t>(k)];
      Use& use = uses[operand.value.index()];
      operand.version = use.version;
      if (operand.access == Access::Update) ++use.version;
      if (operand.access != Access::Read && use.define < 0) use.define = i;
      use.last = i;
      use.last_operand = k;
      use.end = std::max(use.end, ended);
    }
  }
  return uses;
}

// The first op of the row from `from` on whose key is not below `time`: mostly near.
std::int32_t first_at(const std::vector<Op>& ops, std::int32_t from, std::int32_t row_end,
                      std::int64_t time) {
  std::int32_t step = 1, low = from;  // ops before `low` start earlier
  while (low < row_end && ops[static_cast<std::size_t>(low)].key < time) {
    low = std::min(low + step, row_end);
    step *= 2;
  }
  const auto begin = ops.begin() + std::max(from, low - step / 2);
  return static_cast<std::int32_t>(
      std::lower_bound(begin, ops.begin() + low, time,
                       [](const Op& op, std::int64_t at) { return op.key < at; }) -
      ops.begin());
}

// The arena of a row, whose values are given, in one memory.
ArenaPlan place(const Schedule& s, RankClass row, std::span<Value> values, Home home) {
  std::vector<ArenaBlock> blocks;
  std::vector<Value*> owner;
  const std::int32_t first = s.row_begin[row.index()], end = s.row_begin[row.index() + 1];
  for (Value& value : values) {
    if (value.home != home || value.bytes.value == 0) continue;
    if (home == Home::Host && !in_host_arena(value)) continue;
    // Before the step is earlier than its first op.
    blocks.push_back({value.bytes.value, value.define ? value.define.value : first - 1,
                      value.hold_until ? value.hold_until.value : end - 1});
    owner.push_back(&value);
  }
  ArenaPlan plan = plan_arena(blocks);
  for (std::size_t b = 0; b < owner.size(); ++b) owner[b]->offset = {plan.offset[b]};
  return plan;
}

}  // namespace

void plan_lifetimes(Schedule& s, const Margins& margins, const std::vector<std::int64_t>& duration,
                    bool arena) {
  const std::vector<Use> uses = number_versions(s, margins, duration);
  for (std::size_t v = 0; v < s.values.size(); ++v) {
    Value& value = s.values[v];
    const Use& use = uses[v];
    if (value.persistent || use.last < 0) continue;
    value.define = {use.define};
    value.last_use = {use.last};
    s.operands[static_cast<std::size_t>(use.last_operand)].last = true;
    const std::int32_t next =
        first_at(s.ops, use.last, s.row_begin[value.row.index() + 1], use.end);
    value.hold_until = {std::max(use.last, next - 1)};
  }
  if (!arena) return;
  const bool on_drives = std::ranges::find(s.values, Home::Nvme, &Value::home) != s.values.end();
  auto rest = s.values.begin();  // those of a row lie together
  for (RankClass row{0}; row.value < s.num_rows(); ++row.value) {
    const auto last =
        std::find_if(rest, s.values.end(), [&](const Value& value) { return value.row != row; });
    const std::span<Value> own(rest, last);
    const ArenaPlan device = place(s, row, own, Home::Device);
    s.arena_bytes.push_back({device.bytes});
    s.live_peak_bytes.push_back({device.live_peak});
    s.host_bytes.push_back({place(s, row, own, Home::Host).bytes});
    if (on_drives) s.nvme_bytes.push_back({place(s, row, own, Home::Nvme).bytes});
    rest = last;
  }
}

}  // namespace rehearse
