// SPDX-License-Identifier: Apache-2.0
// UTF-8, byte by byte; and text of others as our lines may have it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rehearse {

// Bytes of the character at the front of `text`; 0: none, or no UTF-8 (RFC 3629: no longer form
// than needed, no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::string_view text);
// Bytes of `text` up to what is no UTF-8; all of them where nothing is.
std::size_t utf8_prefix(std::string_view text);

// On one line, and not longer than a screen takes: `limit` bytes, control characters as '?'.
std::string printable(std::string_view text, std::size_t limit);

}  // namespace rehearse
