// SPDX-License-Identifier: Apache-2.0
// A shell script as tokens: words as they are written, quotes and all, and operators. Nothing is
// expanded here (shell_script.h does).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/result.h"

namespace rehearse {

struct ShellToken {
  enum class Kind : std::uint8_t { Word, Operator, Newline, HereDocument };
  Kind kind = Kind::Word;
  std::string text;  // of a here-document: its lines
  std::int32_t line = 0;
  bool quoted = false;  // of a here-document: nothing in it is expanded
};

// `#SBATCH` lines come out as comments do: read_batch_options finds them. Errors: a quote or a
// parenthesis that does not end; one line, without the file's name.
Result<std::vector<ShellToken>> shell_tokens(std::string_view text, std::int32_t first_line);

// From an opening character at `at` (a quote, "$(", "${", a back-quote) to behind its end; npos:
// there is none.
std::size_t end_of_quote(std::string_view text, std::size_t at);

}  // namespace rehearse
