// SPDX-License-Identifier: Apache-2.0
// The document on standard input: what a command's `-` names.
#pragma once

#include <string>

#include "schedules/base/result.h"

namespace rehearse {

// All of it, read at the first call; later calls give the same text. Error: it cannot be read, or
// is larger than 64 MiB.
const Result<std::string>& standard_input();

// While it lives, `text` is the standard input of this thread.
class AsStandardInput {
 public:
  explicit AsStandardInput(std::string text);
  ~AsStandardInput();
  AsStandardInput(const AsStandardInput&) = delete;
  AsStandardInput& operator=(const AsStandardInput&) = delete;

 private:
  Result<std::string> text_;
  const Result<std::string>* before_;
};

}  // namespace rehearse
