// SPDX-License-Identifier: Apache-2.0
// Memory of a model whose layers differ, by kind of what is in its layers: whose parameters a rank
// has, and what is kept for whose backward. Of models whose layers are all attention with an MLP or
// experts nothing is told apart.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/body/body.h"
#include "sim/memory/memory.h"
#include "sim/memory/memory_script.h"

namespace rehearse::sim {

// What a step's `kind` counts in; the first is what belongs to no segment: activations and
// gradients that are handed between stages. Empty: nothing is told apart.
std::vector<std::string> memory_kinds(const Transformer& model);

// From here on steps' kinds are places in `kinds`. What a layer reads is its first block's, or that
// of the kind that holds its streams; what lies between two blocks is the second's.
void name_kinds(SegmentPrograms& programs, const Transformer& model,
                std::span<const std::string> kinds);

// What a rank has of each kind; of those alone that it has anything of. `activations`: [B] by place
// in `kinds`, at the rank's peak.
std::vector<KindMemory> kind_memory(const Layout& layout, std::span<const SegmentInfo> segments,
                                    std::span<const std::string> kinds,
                                    std::span<const std::int64_t> activations);

}  // namespace rehearse::sim
