// SPDX-License-Identifier: Apache-2.0
// The file of a runtime's profile: scenarios/runtimes/NAME.json, or one of one's own.
//
// A file has the traits (runtime.h) and what the memory of a rank holds (sim/memory reads that). It
// may name a `base`: what the file leaves out is the base's, and what no file says of the traits is
// Megatron-LM's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/base/result.h"
#include "schedules/runtime/runtime.h"

namespace rehearse {

const KeyTable& runtime_key_table();

// One file, its sources dropped and its keys checked. What is shipped is read once by a process.
struct RuntimeFile {
  std::string path;
  std::shared_ptr<const JsonValue> document;
};

// The file of the profile `name` and those that it is based on, the last one first. A name that
// ends with .json is a path: absolute, as the file `from` would write it, or from where the user
// stands; else it is a shipped profile's. Errors: one line, "FILE:LINE: KEY: what is wrong".
Result<std::vector<RuntimeFile>> read_runtime_files(const std::string& name,
                                                    const std::string& from,
                                                    const KeyTable& table = runtime_key_table());
// The traits that these files say; `name` becomes the shipped name, or an absolute path.
Result<RuntimeTraits> read_runtime(const std::string& name, const std::string& from);

}  // namespace rehearse
