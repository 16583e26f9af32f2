// SPDX-License-Identifier: Apache-2.0
// Words of a model file that nobody knows: which known one may have been meant.
#pragma once

#include <span>
#include <string_view>

namespace rehearse {

// The word of `known` that `word` is a typing mistake of, within two edits, or has cut short:
// "beta_fst" is beta_fast, "attn_factor" attention_factor. "": none is so near.
std::string_view near_miss(std::string_view word, std::span<const std::string_view> known);

}  // namespace rehearse
