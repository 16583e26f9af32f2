// SPDX-License-Identifier: Apache-2.0
// A scenario as a command line names it, and what a file is that is none.
#pragma once

#include <string>

#include "schedules/base/json_reader.h"

namespace rehearse {

// The document of the scenario `path` (scenario_file), which becomes the file's path. Errors: as
// read_json; a name that is not there comes with the nearest shipped one, a file of another kind
// is named as what it is.
Result<JsonValue> open_scenario(std::string& path);

// What a document is that is no scenario, and where it belongs: "is a model, ..."; empty: unknown.
std::string other_kind(const JsonValue& document, const std::string& path);

}  // namespace rehearse
