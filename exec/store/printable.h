// SPDX-License-Identifier: Apache-2.0
// Text that came over a network, fit for a terminal, a line and a file.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace rehearse::exec {

// At most about `largest` bytes, with "..." where it was longer. Control characters (C0, DEL, C1),
// line and paragraph separators, marks that turn the direction of writing, and what is no UTF-8
// become "\x1b", byte by byte.
std::string printable(std::string_view text, std::size_t largest = 2000);

}  // namespace rehearse::exec
