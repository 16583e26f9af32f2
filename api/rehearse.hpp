// SPDX-License-Identifier: Apache-2.0
// Rehearse from C++17 and later, over the C functions of rehearse.h, so that library and program
// need not be built by one compiler.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rehearse.h"

namespace rehearse {

struct Answer {
  int code = REHEARSE_DONE;  // or another of rehearse.h
  std::string text, errors;  // of standard output (with --json one document), of standard error
};

// Performs `rehearse ARGUMENTS...`; `input` is what a `-` among them names.
inline Answer ask(const std::vector<std::string>& arguments, const std::string& input = {}) {
  std::vector<const char*> words;
  for (const std::string& word : arguments) words.push_back(word.c_str());
  const std::unique_ptr<rehearse_answer, decltype(&rehearse_free)> answer(
      rehearse_ask(static_cast<int>(words.size()), words.data(), input.c_str()), rehearse_free);
  return {rehearse_code(answer.get()), rehearse_text(answer.get()), rehearse_errors(answer.get())};
}

}  // namespace rehearse
