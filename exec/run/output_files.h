// SPDX-License-Identifier: Apache-2.0
// Files that a training run writes: whether they can be written is known before hours of training.
#pragma once

#include <fstream>
#include <string>

#include "schedules/base/result.h"

namespace rehearse::exec {

// Whether a file that appears by renaming can appear at `path`; an empty path can. Error: why not.
Result<> check_output(const std::string& path);

// The lines of --metrics. They are gathered in PATH.partial, which is what a killed run leaves, and
// get their name at the end, however the run ends; where one line could not be written, nothing is
// left and an older file stays. A terminal or pipe takes them as they come.
class Metrics {
 public:
  Metrics() = default;
  ~Metrics() { (void)finish(); }
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  // An empty path: nothing is written.
  Result<> open(const std::string& path);
  void add(const std::string& line);
  Result<> finish();

 private:
  std::string path_, partial_;
  int error_ = 0;  // of the first line that could not be written, as errno has it
  std::ofstream out_;
};

}  // namespace rehearse::exec
