// SPDX-License-Identifier: Apache-2.0
// How the layers of a model are dealt out to the chunks of its pipeline.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/scenario/plan.h"

namespace rehearse {

// Equal shares where `chunks` divides `layers`. Else layers + 2 slots, the embedding and the head
// taking one each, spread evenly, larger shares first.
// REQUIRES: 1 <= chunks <= layers + 2.
std::vector<std::int32_t> default_stage_layers(std::int32_t layers, std::int32_t chunks);

// Those that a plan has where nobody says them. REQUIRES: its own are resolved.
std::vector<std::int32_t> usual_stage_layers(const Plan& plan);
// ", layers Et*13|t*12|t*13L" where the plan's are others; else empty.
std::string layers_text(const Plan& plan);

struct StageLayout {
  std::vector<std::int32_t> layers;    // `t` of each chunk
  std::int32_t prediction_layers = 0;  // `m`, all in one chunk,
  std::int32_t prediction_stage = -1;  // this one; -1: there are none
};
// A layout in Megatron-LM's words (--pipeline-model-parallel-layout): `E` embedding, `t` one layer,
// `m` one layer of multi-token prediction, `L` head; `|` ends a chunk, `(...)*N` and `t*N` repeat,
// commas and blanks mean nothing: "Et*3|(tt|)*29m|L". Legality of `m`: NVIDIA/Megatron-LM
// megatron/core/transformer/pipeline_parallel_layer_layout.py (no `t` behind it, one chunk for all,
// not the first). The error says what is wrong, without a place.
Result<StageLayout> parse_layout(std::string_view layout);

// The other way: chunks with so many layers each, "Et*13|t*12|t*13L"; `m` as above.
std::string layout_text(const std::vector<std::int32_t>& layers, std::int32_t prediction_stage = -1,
                        std::int32_t prediction_layers = 0);

}  // namespace rehearse
