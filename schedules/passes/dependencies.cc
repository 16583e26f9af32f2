// SPDX-License-Identifier: Apache-2.0
// What follows what on a row, before its order is known: reads follow the last write; a write
// follows the last write and every read since. Ops of the compute stream follow one another,
// whatever they touch.
#include "schedules/passes/draft.h"

namespace rehearse {
namespace {

// Who touched a value: ops, and reads of other streams as a list through the operands.
struct Touched {
  std::int32_t writer = -1;
  std::int32_t computing = -1;  // the last reader since, on the compute stream
  std::int32_t newest = -1;     // operand of the last one on another
};
struct OtherRead {
  std::int32_t reader, older;  // op; operand, or -1
};

}  // namespace

Dependencies dependencies_of(const Draft& draft) {
  Dependencies found;
  found.begin.reserve(draft.ops.size() + 1);
  found.from.reserve(draft.operands.size());
  std::vector<Touched> values(draft.schedule.values.size());
  std::vector<OtherRead> reads(draft.operands.size());
  std::int32_t k = 0, id = 0;
  auto barrier = draft.barriers.begin();
  for (std::size_t row = 0; row + 1 < draft.row_begin.size(); ++row) {
    std::int32_t last_compute = -1;
    for (; id < draft.row_begin[row + 1]; ++id) {
      const DraftOp& at = draft.ops[static_cast<std::size_t>(id)];
      const bool compute = at.op.stream == Stream::Compute;
      const auto follow = [&](std::int32_t before) {
        if (before < 0 || before == id) return;
        const bool chained =
            compute && draft.ops[static_cast<std::size_t>(before)].op.stream == Stream::Compute;
        if (!chained) found.from.push_back(before);
      };
      for (; k < at.operand_end; ++k) {
        const Operand& operand = draft.operands[static_cast<std::size_t>(k)];
        if (operand.access == Access::Workspace) continue;
        Touched& value = values[operand.value.index()];
        follow(value.writer);
        if (operand.access == Access::Read) {
          if (compute) {
            value.computing = id;
          } else {
            reads[static_cast<std::size_t>(k)] = {id, value.newest};
            value.newest = k;
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
      for (; barrier != draft.barriers.end() && barrier->first.value == id; ++barrier) {
        follow(barrier->second.value);
      }
      if (compute) {
        if (last_compute >= 0) found.from.push_back(last_compute);
        last_compute = id;
      }
      found.begin.push_back(static_cast<std::int32_t>(found.from.size()));
    }
  }
  return found;
}

}  // namespace rehearse
