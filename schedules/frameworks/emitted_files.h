// SPDX-License-Identifier: Apache-2.0
// The files that a plan is emitted as: lines with flags in groups, or flags as a tree.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/frameworks/framework_file.h"
#include "schedules/frameworks/setting.h"

namespace rehearse {

// `groups`: of each flag.
Result<std::string> emitted_text(
    const EmittedFile& file, const std::vector<Setting>& flags,
    const std::vector<std::string>& groups,
    const std::vector<std::pair<std::string, std::string>>& environment, const Names& names);

// As one word of a shell.
std::string shell_quoted(std::string_view text);
// A flag with its values in a command: "--tp 8", also of a document's flag "tp".
std::string command_words(const Setting& flag);

}  // namespace rehearse
