// SPDX-License-Identifier: Apache-2.0
// torch's two CSV forms: compute orders, and orders with transfers. One row per rank, one cell per
// op, an empty cell is an idle slot. (torch.distributed.pipelining, `_load_csv`, `_dump_csv`.)
#pragma once

#include <string>
#include <string_view>

#include "schedules/base/result.h"
#include "schedules/ir/schedule.h"

namespace rehearse {

// Which form it is follows from whether a SEND or RECV occurs. Cells are op text (text_reader.h),
// blanks around them and quotes allowed; lines end with \n or \r\n. Stage -> rank, micro-batches
// and slices are inferred (assemble.h). Errors: "PATH:LINE: cell N: column C: what is wrong".
Result<Schedule> parse_csv(std::string_view text, const std::string& path);

// Errors: an op for which CSV has no word (collectives on buckets, copies, GRAD_NORM).
Result<std::string> to_csv(const Schedule& schedule);

}  // namespace rehearse
