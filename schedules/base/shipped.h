// SPDX-License-Identifier: Apache-2.0
// What people call shipped files: "h100" means dgx-h100, "Llama-3.1-8B" llama3.1-8b.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace rehearse {

// The id in a folder of shipped files ("clusters") that a name means: it is that id but for case,
// dashes and dots, or its words are among the id's words and no other such id has as few more
// (equal ones: dgx, the vendor's own system). None: no id, or several, are meant.
std::optional<std::string> meant_id(std::string_view name, std::string_view folder);
// find_file(), and what the name means where there is no such file.
std::optional<std::string> find_meant_file(std::string_view name, std::string_view from,
                                           std::string_view folder);
// "no such file: "a100"; it may mean dgx-a100-40gb, dgx-a100-80gb; rehearse list clusters has all",
// "no such file: "h1000"; the nearest shipped one is dgx-h100; rehearse list clusters has all"
std::string no_such_file(std::string_view name, std::string_view folder);

}  // namespace rehearse
