// SPDX-License-Identifier: Apache-2.0
// Writing JSON by hand, for files too long for a document in memory.
#pragma once

#include <string>
#include <string_view>

namespace rehearse::viz {

// `text` in quotes. Bytes that are no UTF-8 become U+FFFD, so that every reader takes the file.
std::string json_string(std::string_view text);

}  // namespace rehearse::viz
