// SPDX-License-Identifier: Apache-2.0
// Where a command's words go, and the one line that an error is.
#include "cli/words.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <stdexcept>

#include "cli/commands.h"
#include "schedules/base/bytes/whole_file.h"

namespace rehearse::cli {
namespace {

thread_local Words* kept = nullptr;  // of KeepWords

// Names of hundreds of characters are shown by their ends; a path by its file.
std::string with_short_words(const std::string& message) {
  constexpr std::size_t kLongest = 300, kBegin = 120, kEnd = 80;
  const auto whole_character = [&](std::size_t at) {  // of UTF-8
    while (at > 0 && (static_cast<unsigned char>(message[at]) & 0xC0) == 0x80) --at;
    return at;
  };
  std::string text;
  for (std::size_t i = 0; i < message.size();) {
    const std::size_t end = std::min(message.find(' ', i + 1), message.size());
    if (end - i <= kLongest) {
      text.append(message, i, end - i);
    } else {
      text.append(message, i, whole_character(i + kBegin) - i).append("...");
      const std::size_t rest = whole_character(end - kEnd);
      text.append(message, rest, end - rest);
    }
    i = end;
  }
  return text;
}

}  // namespace

void print_error(const std::string& message) {
  std::string line = with_short_words(message);  // names and library texts may hold anything
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  line = "rehearse: " + line + "\n";
  if (kept != nullptr) {
    kept->errors += line;
  } else {
    std::fputs(line.c_str(), stderr);
  }
}

int fail(const std::string& message, int code) {
  print_error(message);
  return code;
}

int exit_code(const Error& error) {
  return error.infeasible ? kNo : error.machine ? kRunFailed : kBadInput;
}

int fail(const Error& error) {
  return fail(error.message, exit_code(error));
}

bool words_are_kept() {
  return kept != nullptr;
}

bool on_terminal(std::FILE* stream) {
  return kept == nullptr && isatty(fileno(stream)) != 0;
}

bool takes_color() {
  const char* no_color = std::getenv("NO_COLOR");
  return on_terminal(stdout) && (no_color == nullptr || *no_color == '\0');
}

void print_text(std::string_view text) {
  if (kept != nullptr) {
    kept->text += text;
    return;
  }
  const bool failed_before = std::ferror(stdout) != 0;
  errno = 0;
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (written || failed_before) return;
  print_error(std::string("standard output: cannot write: ") + std::strerror(errno));
}

bool ends_as(const std::string& path, std::string_view flag, std::string_view ending) {
  constexpr std::array<std::string_view, 9> kKinds{".svg",  ".png", ".json", ".csv", ".html",
                                                   ".jpeg", ".jpg", ".pdf",  ".txt"};
  for (const std::string_view kind : kKinds) {
    if (kind == ending || !path.ends_with(kind)) continue;
    print_error(fmt::format("{}: {}: it writes {}, not {}: name a file that ends in {}", flag, path,
                            ending.substr(1), kind.substr(1), ending));
    return false;
  }
  return true;
}

int write_file(const std::string& path, const std::string& content) {
  const Result<> written = write_whole(path, content);
  return written ? kDone : fail(written.error());
}

KeepWords::KeepWords(Words& words) : before_(kept) {
  kept = &words;
}

KeepWords::~KeepWords() {
  kept = before_;
}

namespace {

// The last line, without asking for memory where it is printed.
void end_with(const char* what, const char* more = "") {
  if (kept != nullptr) {
    kept->errors.append("rehearse: ").append(what).append(more).append("\n");
  } else {
    std::fprintf(stderr, "rehearse: %s%s\n", what, more);
  }
}

}  // namespace

int thrown() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    end_with("not enough memory on this machine");
  } catch (const std::length_error&) {  // a list longer than memory can be
    end_with("not enough memory on this machine");
  } catch (const std::exception& error) {
    end_with("internal error: ", error.what());
  } catch (...) {
    end_with("internal error");
  }
  return kRunFailed;
}

}  // namespace rehearse::cli
