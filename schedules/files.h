// Where the files that a scenario names lie.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rehearse {

// The file `name` as written in the file `from` ("" for the command line): as it is where absolute,
// else relative to the folder of `from`, then to the shipped scenarios/; then as the id of a
// shipped file, FOLDER/NAME.json there. Empty where there is none.
std::optional<std::string> find_file(std::string_view name, std::string_view from,
                                     std::string_view folder);
// File name without its folder and ending.
std::string stem_of(std::string_view path);

}  // namespace rehearse
