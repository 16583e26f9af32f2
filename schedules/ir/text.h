// SPDX-License-Identifier: Apache-2.0
// Ops as text, in torch's notation: `2F0`, `3SEND_B1`, `(0F3;7B1)OVERLAP_F_B`, `0F1.2` (slice 2),
// `3F1[0]` or `3F1[0:2]` (part: one segment, or a run of them), `0UNSHARD`, `0SCATTER[pairs]`
// (exchange 0 of an own group; its group is known to the schedule alone). Writing only;
// the reader is text_reader.h.
#pragma once

#include <string>

#include "schedules/ir/schedule.h"

namespace rehearse {

std::string kind_text(OpKind kind, Payload payload);  // SEND_F, GATHER_F, LOSS
std::string to_text(const Schedule& schedule, OpId id);
std::string to_text(const Op& op);  // without a schedule: an OVERLAP prints as its kind
std::string row_to_text(const Schedule& schedule, RankClass row);  // joined by blanks

}  // namespace rehearse
