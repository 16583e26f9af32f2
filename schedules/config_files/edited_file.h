// SPDX-License-Identifier: Apache-2.0
// A file that a script makes of another with sed: `sed "s/SIZE/8/" TEMPLATE | sed ... > FILE`. What
// is replaced is text, no pattern.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse {

struct TextEdit {
  std::string from, to;      // `to` may hang on what only a run knows (shell_script.h)
  bool everywhere = false;   // in a line; else where it stands first
};

struct EditedFile {
  std::string file;  // that is edited
  std::vector<TextEdit> edits;
};

// "s/SIZE/8/g", with any separator; empty: another command of sed, or a pattern.
std::optional<TextEdit> text_edit(std::string_view command);

// `text` with all of them, one after another. Errors: one line that names the variable on which a
// text hangs that is put in.
Result<std::string> edited(std::string_view text, const std::vector<TextEdit>& edits);

}  // namespace rehearse
