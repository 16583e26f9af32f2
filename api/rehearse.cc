// SPDX-License-Identifier: Apache-2.0
#include "api/rehearse.h"

#include <string>
#include <vector>

#include "cli/ask.h"
#include "cli/commands.h"

struct rehearse_answer {
  rehearse::cli::Answer answer;
};

namespace {

namespace cli = rehearse::cli;
static_assert(REHEARSE_DONE == int{cli::kDone} && REHEARSE_NO == int{cli::kNo} &&
              REHEARSE_BAD_INPUT == int{cli::kBadInput} && REHEARSE_FAILED == int{cli::kRunFailed});

// The answer where there is no memory for another; never freed.
rehearse_answer no_memory{{REHEARSE_FAILED, {"", "rehearse: not enough memory on this machine\n"}}};

cli::Answer answer_to(int count, const char* const* arguments, const char* input) {
  std::vector<std::string> words;
  for (int i = 0; i < count; ++i) {
    if (arguments == nullptr || arguments[i] == nullptr) {
      return {REHEARSE_BAD_INPUT,
              {"", "rehearse: argument " + std::to_string(i + 1) + " is a null pointer\n"}};
    }
    words.emplace_back(arguments[i]);
  }
  return cli::ask(words, input == nullptr ? "" : input);
}

}  // namespace

extern "C" {

rehearse_answer* rehearse_ask(int count, const char* const* arguments, const char* input) try {
  return new rehearse_answer{answer_to(count, arguments, input)};
} catch (...) {  // std::bad_alloc: ask() throws nothing else
  return &no_memory;
}

int rehearse_code(const rehearse_answer* answer) {
  return answer->answer.code;
}

const char* rehearse_text(const rehearse_answer* answer) {
  return answer->answer.words.text.c_str();
}

const char* rehearse_errors(const rehearse_answer* answer) {
  return answer->answer.words.errors.c_str();
}

void rehearse_free(rehearse_answer* answer) {
  if (answer != &no_memory) delete answer;
}

const char* rehearse_version() {
  return REHEARSE_VERSION;
}

}  // extern "C"
