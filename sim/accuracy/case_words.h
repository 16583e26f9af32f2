// SPDX-License-Identifier: Apache-2.0
// What a measured case says in the words of its source, where its form has no key for it or where
// the value under the key is none of the source's.
#pragma once

#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan.h"

namespace rehearse::sim {

// `item`: the case. A key that its plan says stands, but for one that `uncertain` takes back.
// - The dispatcher of experts by its name (Megatron-LM's alltoall, allgather, flex with DeepEP or
//   HybridEP), in `reported.experts.dispatcher` or in what `uncertain` says of the runtime.
// - `reported.experts.grouped_gemm` false: products of experts one after another.
// - Routing that `reported.experts.routing` calls "balanced by construction".
// - `uncertain` "flash_attention: left to the default ...": the runtime's own kernel, whatever
//   flash_attention says.
void take_case_words(const JsonValue& item, Plan& plan);

}  // namespace rehearse::sim
