// SPDX-License-Identifier: Apache-2.0
// Where the files that a scenario names lie.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rehearse {

// Where scenarios/ was installed or built from; the environment's REHEARSE_SCENARIOS wins.
std::string shipped_directory();
// The file `name` as written in the file `from` ("" for the command line): as it is where absolute,
// else relative to the folder of `from`, then to the shipped scenarios/; then as the id of a
// shipped file, FOLDER/NAME.json there. Empty where there is none.
std::optional<std::string> find_file(std::string_view name, std::string_view from,
                                     std::string_view folder);
// The scenario `name` of the command line: the file itself where there is one, else the shipped
// scenario of that name: 3d-8-gpus, 3d-8-gpus.json or scenarios/3d-8-gpus.json. Where there is
// neither, `name` as it stands, for the reader to say so.
std::string scenario_file(const std::string& name);
// The shipped scenario whose name is nearest to one that is not there; empty: none is near.
std::string nearest_scenario(const std::string& name);
// The ids of the shipped files of a folder, sorted: "runtimes" -> fsdp, megatron, ...
std::vector<std::string> shipped_names(std::string_view folder);
// File name without its folder and ending.
std::string stem_of(std::string_view path);

}  // namespace rehearse
