// SPDX-License-Identifier: Apache-2.0
// One walk over the compute ops of every row: how far each stage, micro-batch and slice came, and
// what stands in the wrong order or twice. V2, V3 and V13 read it.
#pragma once

#include <vector>

#include "schedules/ir/stage_index.h"

namespace rehearse {

enum class Fault : std::uint8_t {
  Twice,              // V2: again what is done already
  BothForms,          // V2: B beside I or W of the same micro-batch
  BeforeForward,      // V3: B, I or R before its F
  WeightBeforeInput,  // V3: W before its I
  PartOrder,          // V3: parts of F and R ascend, of B and I descend
  SliceOrder,         // V3: slices of F ascend, of B and I descend
  RecomputeLate,      // V3: R after its B or I
  BeforeArrival,      // V3: op before the RECV that brings its input
  BeforeProducer,    // V3: op before that of the neighbouring stage, on the same row, that feeds it
  SendBeforeSource,  // V3: SEND before the op that makes what it carries
  Elsewhere,         // V13: op on another position than its stage's
};
struct Finding {
  Fault fault{};
  std::int32_t op = -1;     // where
  std::int32_t other = -1;  // the op that should come first, if there is one
  Op work;                  // the op itself, or the child of an OVERLAP that is meant
};

// Segments that are through: forwards ascend from 0, backwards descend from all.
struct Progress {
  std::int16_t forward = 0, backward = -1, weight = 0;  // backward -1: nothing yet
  std::int16_t recomputed = 0;                          // by an R
  bool whole = false, split = false;                    // a B was seen; an I or W was seen
};

struct Survey {
  Survey(const Schedule& schedule, const StageIndex& index);

  std::vector<Progress> progress;      // by key of StageIndex
  std::vector<std::int16_t> segments;  // per stage: parts are counted in these (1: never cut)
  std::vector<Finding> findings;       // in program order
};

}  // namespace rehearse
