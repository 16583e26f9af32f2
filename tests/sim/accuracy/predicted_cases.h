// SPDX-License-Identifier: Apache-2.0
// The published measurements, predicted once for all tests of a program.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "sim/accuracy/validation.h"

namespace rehearse::sim {

using Select = std::function<bool(const std::string& id)>;

// `overrides`: "KEY=VALUE", what every case says instead.
inline const ValidationFile& predicted(const std::string& name,
                                       const std::vector<std::string>& overrides = {}) {
  static std::map<std::pair<std::string, std::vector<std::string>>, ValidationFile> files;
  const auto [at, fresh] = files.try_emplace({name, overrides});
  if (!fresh) return at->second;
  Result<ValidationFile> file =
      read_validation("tests/data/validation/" + name + ".json", {.overrides = overrides});
  EXPECT_TRUE(file) << (file ? "" : file.error().message);
  if (!file) return at->second;
  at->second = std::move(file).value();
  for (ValidationCase& entry : at->second.cases) {
    const Result<> result = predict_case(entry, at->second.path);
    EXPECT_TRUE(result) << (result ? "" : result.error().message);
    EXPECT_TRUE(entry.skipped.empty() || entry.skipped.ends_with("not built yet")) << entry.skipped;
  }
  return at->second;
}

inline FileScore score_group(const std::string& name, const Select& select,
                             const std::vector<std::string>& overrides = {}) {
  std::vector<const ValidationCase*> cases;
  for (const ValidationCase& entry : predicted(name, overrides).cases) {
    if (select(entry.id)) cases.push_back(&entry);
  }
  return score(cases);
}

inline bool has(const std::string& id, std::string_view word) {
  return id.find(word) != std::string::npos;
}
inline bool all(const std::string&) {
  return true;
}

}  // namespace rehearse::sim
