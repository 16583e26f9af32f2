// SPDX-License-Identifier: Apache-2.0
// Documents (YAML, TOML, JSON) as flags: "parallelism.tp", one for every value.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/frameworks/setting.h"

namespace rehearse {

// Lists of values stay together; a list of objects is its members, counted from 0:
// "data_stages.0.name". An empty object is a flag that says null.
std::vector<Setting> flags_of_document(const JsonValue& document, const std::string& file);
// A scalar as the file has it.
std::string scalar_text(const JsonValue& value);

// Keeps the last of what is said several times: a base says it first.
void keep_last(std::vector<Setting>& flags);

// OmegaConf's ${a.b}, ${.sibling}, ${multiply: a, b}, ${divide_ceil: a, b} and
// ${oc.env:NAME,default} become what they stand for; what only a run knows is left, and named.
// `variables`: --var.
void resolve_interpolations(std::vector<Setting>& flags,
                            const std::map<std::string, std::string>& variables);

// JSON as people keep it: comments (//, #, /* */) and commas before a closing bracket become
// blanks, so that lines stay where they are.
std::string plain_json(std::string_view text);

}  // namespace rehearse
