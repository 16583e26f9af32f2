// SPDX-License-Identifier: Apache-2.0
// The integers of a shell's $(( ... )): + - * / % and parentheses.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace rehearse {

// None: something else stands there, or a name that is no number. `value`: of a name.
std::optional<std::int64_t> shell_arithmetic(
    std::string_view text, const std::function<std::string(const std::string&)>& value);

}  // namespace rehearse
