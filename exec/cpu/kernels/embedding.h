// SPDX-License-Identifier: Apache-2.0
// The kernels that are compiled once, whatever the instruction set, as kernel_rows.inc has them.
#pragma once

#include <cstdint>

#include "exec/backend/shapes.h"

namespace rehearse::exec {

void embed(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const float* table,
           const VocabularyShape& shape, float* out);
void embed_backward(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const float* dy,
                    const VocabularyShape& shape, std::int32_t* order, float* d_table);
void rope(const AttentionShape& shape, const RotaryShape& rotary, bool inverse, float* qkv);
void temper_queries(const AttentionShape& shape, const Temperature& temperature, float* qkv);

}  // namespace rehearse::exec
