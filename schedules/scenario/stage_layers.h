// SPDX-License-Identifier: Apache-2.0
// How the layers of a model are dealt out to the chunks of its pipeline.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse {

// Equal shares where `chunks` divides `layers`. Else layers + 2 slots, the embedding and the head
// taking one each, spread evenly, larger shares first.
// REQUIRES: 1 <= chunks <= layers + 2.
std::vector<std::int32_t> default_stage_layers(std::int32_t layers, std::int32_t chunks);

// A layout in Megatron-LM's words (--pipeline-model-parallel-layout): `E` embedding, `t` one layer,
// `L` head; `|` ends a chunk, `(...)*N` and `t*N` repeat, commas and blanks mean nothing:
// "E|(t)*10|(tt|)*4L" has one entry per chunk. The error says what is wrong, without a place.
Result<std::vector<std::int32_t>> parse_layout(std::string_view layout);

}  // namespace rehearse
