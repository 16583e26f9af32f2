// SPDX-License-Identifier: Apache-2.0
// Ops from text: a superset of torch's notation, matched to the last character.
//
//   2F0   2B0   2I0   2W0   2R0     stage, kind, micro-batch
//   0F1.2                           sequence slice 2
//   3F1[0]  3F1[0:2]                part: segments 0 to 1 of the stage
//   0SEND_F1  1RECV_F1  1SEND_B1    transfer, named by the stage that issues it
//   0SEND_F1>r1  1RECV_F1<r0        the same with the rank of the other end
//   0UNSHARD  0RESHARD  0REDUCE_GRAD
//   (0F3;7B1)OVERLAP_F_B            two ops that may run at the same time, forward first
//   [0SEND_F3>r1 3RECV_F2<r1]       transfers in one group (batch_isend_irecv)
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/ir/op.h"

namespace rehearse {

struct ParsedOp {
  Op op;
  std::array<Op, 2> children{};  // of an OVERLAP
};

// One op, no group. The error begins with the column that cannot be read, counted from 1:
// `column 4: unexpected "xyz"`.
Result<ParsedOp> parse_op(std::string_view text);
// One op, or a group of transfers in brackets (more than one element, or one).
struct ParsedCell {
  std::vector<ParsedOp> ops;
  bool group = false;
};
Result<ParsedCell> parse_cell(std::string_view text);

}  // namespace rehearse
