// SPDX-License-Identifier: Apache-2.0
// What a person chose, kept from one time to the next: lines "name value" of a small file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "viz/window/session.h"

namespace rehearse::viz {

class Settings {
 public:
  // Names that are not known are kept. Error: "PATH:LINE: what is wrong".
  static Result<Settings> parse(std::string_view text, const std::string& path);
  void apply(ViewState& state) const;
  // The file: what the state says now, and the lines whose names are not known.
  std::string text(const ViewState& state) const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

}  // namespace rehearse::viz
