// SPDX-License-Identifier: Apache-2.0
// What follows what on a row, before its order is known: reads follow the last write; a write
// follows the last write and every read since. Ops of the compute stream follow one another,
// whatever they touch.
#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// Who touched a value: ops, and reads of other streams as a list.
struct Touched {
  OpId writer;
  OpId computing;            // the last reader since, on the compute stream
  std::int32_t newest = -1;  // the last one on another, in the list of these
};
struct OtherRead {
  OpId reader;
  std::int32_t older;  // of the same value; -1: none
};

}  // namespace

Dependencies dependencies_of(Draft& draft) {
  Dependencies found;
  found.ranges.resize(draft.ops.size());
  found.from.reserve(draft.operands.size());
  std::vector<Touched> values(draft.schedule.values.size());
  std::vector<OtherRead> reads;
  auto barrier = draft.barriers.begin();
  for (std::size_t row = 0; row + 1 < draft.row_begin.size(); ++row) {
    OpId last_compute;
    for (const OpId id : draft.program_of(row)) {
      const DraftOp& op = draft.ops[id.index()];
      const bool compute = op.op.stream == Stream::Compute;
      const auto follow = [&](OpId before) {
        if (!before || before == id) return;
        const bool chained = compute && draft.ops[before.index()].op.stream == Stream::Compute;
        if (!chained) found.from.push_back(before);
      };
      Dependencies::Range& range = found.ranges[id.index()];
      range.begin = static_cast<std::int32_t>(found.from.size());
      for (const Operand& operand : draft.operands_of(op)) {
        if (operand.access == Access::Workspace) continue;
        Touched& value = values[operand.value.index()];
        follow(value.writer);
        if (operand.access == Access::Read) {
          if (compute) {
            value.computing = id;
          } else {
            reads.push_back({id, value.newest});
            value.newest = static_cast<std::int32_t>(reads.size()) - 1;
          }
          continue;
        }
        follow(value.computing);
        for (std::int32_t r = value.newest; r >= 0;) {
          const OtherRead& read = reads[static_cast<std::size_t>(r)];
          follow(read.reader);
          r = read.older;
        }
        value = {.writer = id};
      }
      for (; barrier != draft.barriers.end() && barrier->first == id; ++barrier) {
        follow(barrier->second);
      }
      if (compute) {
        if (last_compute) found.from.push_back(last_compute);
        last_compute = id;
      }
      range.end = static_cast<std::int32_t>(found.from.size());
    }
  }
  return found;
}

}  // namespace rehearse
