// SPDX-License-Identifier: Apache-2.0
// A plan becomes a framework's flags, files and environment. What is emitted is read back as an
// import reads it (import_flags.h): a key that does not come back as it was is one that the
// framework cannot express, and is named. So import(emit(plan)) is the plan, or there is an error.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "schedules/base/result.h"
#include "schedules/frameworks/framework_file.h"
#include "schedules/frameworks/setting.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {

struct EmittedText {
  std::string name, text;
};

struct Emitted {
  std::vector<Setting> flags;
  std::vector<std::pair<std::string, std::string>> environment;  // "" where it is to be unset
  std::vector<EmittedText> files;
  // A line for each key that the framework cannot express; the flags then stand for another plan.
  std::vector<std::string> refused;
  std::vector<std::string> notes;
};

// `model_json`: the scenario's model as an object, for frameworks whose files name none.
// `gpus_per_node`: of the cluster. Errors: the plan is not whole, or the framework's file asks for
// what no plan has.
Result<Emitted> emit_flags(const Framework& framework, const Scenario& scenario,
                           const std::string& model_json, std::int32_t gpus_per_node);

// Flags on one line, as they stand in a command.
std::string flags_text(const std::vector<Setting>& flags);

}  // namespace rehearse
