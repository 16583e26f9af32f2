// SPDX-License-Identifier: Apache-2.0
// L1 for people: every op with operands, partners, last uses and waits, as docs/ir.md prints it.
#pragma once

#include <string>

#include "schedules/ir/schedule.h"

namespace rehearse {

// "x0.1/1", "sI2.0", "P.L0", "F.T#2", "g.L2.1", "norms": what a value is, unique on its row.
std::string value_name(const Schedule& schedule, ValueId id);
// The same of a value alone: `bucket` is its bucket's name, `sliced`: sequences come in slices.
std::string value_name(const Value& value, const std::string& bucket, bool sliced);
// "0F1[1]", "ALL_REDUCE G.A<512>", "UNSHARD L2 #1", "ADD G.L2 += h.L2.1".
std::string op_label(const Schedule& schedule, OpId id);
// The program of a row, one op a line, numbered from 0.
std::string listing(const Schedule& schedule, RankClass row);

}  // namespace rehearse
