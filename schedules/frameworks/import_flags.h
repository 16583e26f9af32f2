// SPDX-License-Identifier: Apache-2.0
// A framework's flags become a scenario: every flag is reported as used, without effect, not
// modelled or refused; what the framework takes by itself is written out where it is not what we
// do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/frameworks/framework_file.h"
#include "schedules/frameworks/setting.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {

struct ImportOptions {
  std::int32_t gpus = 0;         // --gpus; 0: what the files launch
  std::string cluster, model;    // empty: what the files say
  std::string model_json;        // or the model as an object
  std::vector<std::string> set;  // KEY=VALUE over all else
  std::string base;              // a scenario that what is imported is laid over; empty: none
  std::string name;              // of the scenario
  std::string runtime;           // a profile in the place of the one that the flags stand for
  bool ignore_unknown = false;   // a flag that nobody knows is reported, not refused
  bool brief = true;             // what the scenario takes by itself is left out
};

// What became of one flag. `use` is empty: nobody knows it.
struct FlagReport {
  Setting setting;
  std::optional<FlagUse> use;
  std::string key, note;
  std::string source;  // where the flag was read in the framework
};

struct Imported {
  std::string framework, title;
  std::string text;   // of the scenario, a key a line
  Scenario scenario;  // the same, read
  std::vector<FlagReport> flags;
  std::vector<FlagReport> environment;
  std::vector<std::string> warnings;
};

// Errors: one line, at the flag that caused it: "train.sh:41: --num-layers: what is wrong".
Result<Imported> import_flags(const Framework& framework, const Settings& settings,
                              const ImportOptions& options);

// The report: schema rehearse.import/1, and for people, grouped by what became of a flag.
std::string import_json(const Imported& imported);
std::string import_text(const Imported& imported);

}  // namespace rehearse
