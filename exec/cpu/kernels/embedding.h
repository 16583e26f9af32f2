// SPDX-License-Identifier: Apache-2.0
// The kernels that are compiled once, whatever the instruction set, as kernel_rows.inc has them.
#pragma once

#include <cstdint>

#include "exec/backend/shapes.h"

namespace rehearse::exec {

template <class Element>
void embed(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const Element* table,
           const VocabularyShape& shape, Element* out);
template <class Element>
void embed_backward(std::int64_t tokens, std::int64_t h, const std::int32_t* ids, const Element* dy,
                    const VocabularyShape& shape, std::int32_t* order, float* d_table);
template <class Element>
void rope(const AttentionShape& shape, const RotaryShape& rotary, bool inverse, Element* qkv);
template <class Element>
void temper_queries(const AttentionShape& shape, const Temperature& temperature, Element* qkv);

}  // namespace rehearse::exec
