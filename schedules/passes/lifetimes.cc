// Versions, last uses, holds and the arena. A value counts as alive from the issue of the op that
// defines it until its last use on every stream is *estimated to have ended*, plus a margin where
// that use is on a communication stream: otherwise compute would wait for a neighbour only to reuse
// memory (docs/ir.md has the price).
#include <algorithm>
#include <array>

#include "schedules/arena.h"
#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

void number_versions_and_uses(Schedule& s) {
  std::vector<std::int16_t> version(s.values.size(), 0);
  std::vector<std::int32_t> last_operand(s.values.size(), -1);
  for (std::int32_t i = 0; i < s.num_ops(); ++i) {
    const auto op = static_cast<std::size_t>(i);
    for (std::int32_t k = s.operand_begin[op]; k < s.operand_begin[op + 1]; ++k) {
      Operand& operand = s.operands[static_cast<std::size_t>(k)];
      Value& value = s.values[operand.value.index()];
      operand.version = version[operand.value.index()];
      if (operand.access != Access::Read) {
        if (!value.define && !value.persistent) value.define = {i};
        if (operand.access == Access::Update) ++version[operand.value.index()];
      }
      value.last_use = {i};
      last_operand[operand.value.index()] = k;
    }
  }
  for (std::size_t v = 0; v < s.values.size(); ++v) {
    Value& value = s.values[v];
    if (value.persistent) value.last_use = {};
    if (last_operand[v] >= 0 && !value.persistent) {
      s.operands[static_cast<std::size_t>(last_operand[v])].last = true;
    }
  }
}

}  // namespace

void plan_lifetimes(Schedule& s, std::int64_t margin, const std::vector<std::int64_t>& duration,
                    bool arena) {
  number_versions_and_uses(s);
  // Estimated end of every use; streams are in order, so the largest over uses is that over
  // streams.
  std::vector<std::int64_t> end(s.values.size(), 0);
  for (std::int32_t i = 0; i < s.num_ops(); ++i) {
    const Op& op = s.ops[static_cast<std::size_t>(i)];
    const bool communication = op.stream == Stream::P2p || op.stream == Stream::Dp;
    const std::int64_t ended =
        op.key + duration[static_cast<std::size_t>(i)] + (communication ? margin : 0);
    for (const Operand& operand : s.operands_of({i})) {
      end[operand.value.index()] = std::max(end[operand.value.index()], ended);
    }
  }
  for (std::size_t v = 0; v < s.values.size(); ++v) {
    Value& value = s.values[v];
    if (!value.last_use) continue;
    const auto row_first = s.ops.begin() + s.row_begin[value.row.index()];
    const auto row_last = s.ops.begin() + s.row_begin[value.row.index() + 1];
    const auto next = std::lower_bound(row_first, row_last, end[v],
                                       [](const Op& op, std::int64_t at) { return op.key < at; });
    value.hold_until = {
        std::max(value.last_use.value, static_cast<std::int32_t>(next - s.ops.begin()) - 1)};
  }
  if (!arena) return;
  for (std::int32_t r = 0; r < s.num_rows(); ++r) {
    std::vector<ArenaBlock> blocks;
    std::vector<std::size_t> owner;
    for (std::size_t v = 0; v < s.values.size(); ++v) {
      const Value& value = s.values[v];
      if (value.row.value != r || value.home == Home::Host || value.bytes.value == 0) continue;
      const std::int32_t begin =
          value.define ? value.define.value : s.row_begin[static_cast<std::size_t>(r)];
      const std::int32_t last = value.hold_until ? value.hold_until.value
                                                 : s.row_begin[static_cast<std::size_t>(r) + 1] - 1;
      // Before the step is earlier than its first op.
      blocks.push_back({value.bytes.value, value.define ? begin : begin - 1, last});
      owner.push_back(v);
    }
    const ArenaPlan plan = plan_arena(blocks);
    for (std::size_t b = 0; b < owner.size(); ++b) s.values[owner[b]].offset = {plan.offset[b]};
    s.arena_bytes.push_back({plan.bytes});
    s.live_peak_bytes.push_back({plan.live_peak});
  }
}

}  // namespace rehearse
