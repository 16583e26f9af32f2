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
//   0SCATTER[pairs]                 exchange 0 of the file's own group `pairs`; also GATHER,
//                                   BROADCAST, REDUCE, ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER,
//                                   ALL_TO_ALL. Its bytes and root stand beside it (assemble.h)
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/ir/op.h"

namespace rehearse {

struct ParsedOp {
  Op op;
  std::array<Op, 2> children{};  // of an OVERLAP
  std::string group;             // an exchange of a group of the file's own; its number is the
                                 // op's instance, its root the op's peer
  std::int64_t bytes = 0;        // of it: the whole array; 0: nobody has said
};

// Whether a group of a file may be called so: letters, digits, _ and -, at most 32 of them.
bool is_group_name(std::string_view name);

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
