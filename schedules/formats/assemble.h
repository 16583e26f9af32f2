// SPDX-License-Identifier: Apache-2.0
// A schedule from rows of ops that somebody wrote: sizes, placement and links follow from them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/formats/text_reader.h"
#include "schedules/ir/schedule.h"

namespace rehearse {

// A group of the file's own: the ranks of every instance, which are all as many.
struct WrittenGroup {
  std::string name;
  std::vector<std::vector<Position>> instances;
};

struct WrittenSchedule {
  std::vector<std::vector<ParsedOp>> rows;  // groups of transfers have equal Op::instance
  std::string name;
  std::vector<WrittenGroup> groups;
  // What the file says; what it leaves out is inferred.
  std::int32_t microbatches = 0, slices = 0;
  std::optional<Placement> placement;
};

// Inferred: a stage lies on the rank that runs it (the one that runs most of it, where several do);
// stages on two ranks, split at one micro-batch, are a bidirectional placement. Micro-batches: as
// many as most stages run. Level::Full where there is a transfer; then linked (link_transfers).
// What does not fit that (an op on another rank, a micro-batch beyond the others) is kept as it is:
// the validator names it.
// Exchanges of the file's own groups stand on the compute stream; equal ones of a group, the first
// with the first, meet. Who lists one that nobody meets is named by the validator too.
// Errors: no op at all; numbers so large that the file cannot hold the ops they imply; an exchange
// without its bytes, or of a group that the file has not.
Result<Schedule> assemble(const WrittenSchedule& written);

// What is wrong where so few ops are to fill so many stages, micro-batches and slices that the
// tables about them would dwarf the file; empty where nothing is. REQUIRES: numbers below 10^8.
std::string too_few_ops(std::int64_t ops, std::int64_t stages, std::int64_t microbatches,
                        std::int64_t slices);

}  // namespace rehearse
