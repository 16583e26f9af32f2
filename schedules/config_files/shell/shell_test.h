// SPDX-License-Identifier: Apache-2.0
// What stands between [ and ], [[ and ]]: tests on texts and numbers that are known are decided;
// those on files, patterns and what only a run knows are not.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "schedules/config_files/shell/shell_tokens.h"

namespace rehearse {

enum class Truth : std::uint8_t { No, Yes, Unknown };

// `text`: of a word, expanded.
Truth shell_test(const std::vector<ShellToken>& tokens,
                 const std::function<std::string(const ShellToken& word)>& text);

}  // namespace rehearse
