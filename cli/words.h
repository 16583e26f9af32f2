// SPDX-License-Identifier: Apache-2.0
// A command's words, kept instead of printed: for who asks in the same process (cli/ask.h).
#pragma once

#include <cstdio>
#include <string>

namespace rehearse::cli {

struct Words {
  std::string text, errors;  // of standard output, of standard error
};

// While it lives, what commands of this thread print goes into `words`.
class KeepWords {
 public:
  explicit KeepWords(Words& words);
  ~KeepWords();
  KeepWords(const KeepWords&) = delete;
  KeepWords& operator=(const KeepWords&) = delete;

 private:
  Words* before_;
};

// Whether words of this thread are kept: then another program asks, in its own process, whose
// signals and streams a command leaves alone.
bool words_are_kept();
// Whether a person reads the stream as it is written; not where words are kept.
bool on_terminal(std::FILE* stream);

// What ends a command that something was thrown in: one line, and its exit code. Ours are Results,
// so what else is thrown is a fault of rehearse. REQUIRES: called in a handler.
int thrown();

}  // namespace rehearse::cli
