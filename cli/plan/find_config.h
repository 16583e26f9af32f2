// SPDX-License-Identifier: Apache-2.0
// Where the config.json of a model lies that a person names.
#pragma once

#include <string>

#include "schedules/base/result.h"

namespace rehearse::cli {

struct FoundConfig {
  std::string path;
  std::string note;  // not empty: what the name was taken for
};

// A file; a folder that holds a config.json; a repository of the hub, "meta-llama/Llama-3.1-8B", as
// its local cache has it ($HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub; the newest
// snapshot); a shipped model's id. Error: one line, with the nearest.
Result<FoundConfig> find_config(const std::string& name);

}  // namespace rehearse::cli
