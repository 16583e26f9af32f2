// SPDX-License-Identifier: Apache-2.0
// A file of a framework before anybody asks what it says: its text, its form, and, where it is a
// table of keys, that table with the files that it lies over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/frameworks/framework_file.h"

namespace rehearse {

enum class FileForm : std::uint8_t { Shell, Arguments, Yaml, Toml, Json, Python };
constexpr bool is_tree(FileForm form) {
  return form == FileForm::Json || form == FileForm::Yaml || form == FileForm::Toml;
}

struct FileBelow;
struct OpenedFile {
  std::string path, text;
  FileForm form = FileForm::Yaml;
  JsonValue document;            // of trees
  std::vector<FileBelow> below;  // files that it lies over, the lowest first
};
// A file under a key of another's: "model.", or "".
struct FileBelow {
  std::string under;
  OpenedFile file;
};

// Its text and form, by its name's ending, else by how it begins.
Result<OpenedFile> open_file(const std::string& path);
// The text of a tree as a document, and those of the files that it lies over. A scenario is refused
// as what it is.
Result<> parse_tree(OpenedFile& file);
// Whether the file, or one that it lies over, has a key that tells whose it is.
bool has_sign(const Framework& framework, const OpenedFile& file);
// Whether one of the words stands in the text.
bool has_any(std::string_view text, const std::vector<std::string>& words);

}  // namespace rehearse
