// SPDX-License-Identifier: Apache-2.0
// What a rank holds between steps: parameters, gradients, optimizer state, as lists of tensors.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/ir/schedule.h"
#include "schedules/scenario/layout.h"
#include "sim/memory/memory_profile.h"

namespace rehearse::sim {

// A unit of ZeRO-3 / FSDP: one segment of one stage of the rank.
struct UnitTensors {
  Stage stage{};
  std::int16_t segment = 0;  // counted in its stage
  SegmentKind kind{};
  std::int64_t layer = -1;
  std::vector<std::int64_t> elements;  // per parameter tensor, on this tensor-parallel rank
  std::int64_t total = 0;              // their sum
};

// All units of the stages that a row runs, in the order of the model. A tied table is held twice
// only where embedding and head lie on different ranks: the head's unit then has a copy.
std::vector<UnitTensors> row_units(const Layout& layout, const std::vector<Stage>& stages,
                                   std::int32_t num_stages);

// Stages of each row of an order, ascending.
std::vector<std::vector<Stage>> stages_of_rows(const Schedule& order);

std::int64_t parameters_of(const std::vector<UnitTensors>& units);

}  // namespace rehearse::sim
