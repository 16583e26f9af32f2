// SPDX-License-Identifier: Apache-2.0
// The command's side of the module.
#include "schedules/base/installed/module.h"
#include "viz/picture/letters/letters.h"

namespace rehearse::viz {

Letters* installed_letters() {
  static Letters* const letters = [] {
    const auto module = load_module<LettersModule>();
    return module ? module.value()->installed() : nullptr;
  }();
  return letters;
}

std::string why_no_letters() {
  if (installed_letters() != nullptr) return {};
  const auto module = load_module<LettersModule>();
  return module ? "no font is installed that fontconfig knows" : module.error().message;
}

}  // namespace rehearse::viz
