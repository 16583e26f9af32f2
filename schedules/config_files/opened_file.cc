// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/opened_file.h"

#include <algorithm>
#include <filesystem>

#include "schedules/base/installed/module.h"
#include "schedules/config_files/document_flags.h"
#include "schedules/config_files/shell/shell_script.h"
#include "schedules/config_files/trees/tree_module.h"

namespace rehearse {
namespace {

std::string_view extension(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  return dot == std::string_view::npos || path.find('/', dot) != std::string_view::npos
             ? std::string_view()
             : path.substr(dot);
}
std::string_view first_token(std::string_view text) {
  while (!text.empty()) {
    const std::size_t begin = text.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) return {};
    text.remove_prefix(begin);
    if (!text.starts_with('#')) return text.substr(0, text.find_first_of(" \t\r\n"));
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
  return {};
}

FileForm form_of(std::string_view path, std::string_view text) {
  const std::string_view ending = extension(path);
  const auto is = [&](std::initializer_list<std::string_view> endings) {
    return std::ranges::find(endings, ending) != endings.end();
  };
  if (is({".yaml", ".yml"})) return FileForm::Yaml;
  if (is({".toml"})) return FileForm::Toml;
  if (is({".json", ".hjson"})) return FileForm::Json;
  if (is({".py"})) return FileForm::Python;
  if (is({".sh", ".slurm", ".sbatch", ".bash"})) return FileForm::Shell;
  const std::string_view first = first_token(text);
  if (text.starts_with("#!") && has_any(text.substr(0, text.find('\n')), {"sh"}))
    return FileForm::Shell;
  if (first.starts_with("--")) return FileForm::Arguments;
  if (first.starts_with("{")) return FileForm::Json;
  if (first.starts_with("[")) return FileForm::Toml;
  if (has_any(text, {"torchrun", "torch.distributed.run", "torch.distributed.launch", "srun ",
                     "deepspeed ", "accelerate launch"})) {
    return FileForm::Shell;
  }
  return FileForm::Yaml;
}

Result<> open_below(OpenedFile& file, int depth);

// `depth`: files that this one lies below.
Result<> parse_tree(OpenedFile& file, int depth) {
  const std::string& path = file.path;
  const auto read_tree = [&]() -> Result<JsonValue> {
    if (file.form == FileForm::Json) return parse_json(plain_json(file.text), path);
    const Result<const TreeModule*> module = load_module<TreeModule>();
    if (!module) return Error{path + ": " + module.error().message};
    return file.form == FileForm::Yaml ? module.value()->yaml(file.text, path)
                                       : module.value()->toml(file.text, path);
  };
  Result<JsonValue> read = read_tree();
  if (!read) return read.error();
  file.document = std::move(read).value();
  if (!file.document.is(JsonKind::Object)) {
    return Error{path + ": no configuration that is known here: it is no table of keys"};
  }
  if (file.document.find("plan") != nullptr && file.document.find("cluster") != nullptr) {
    return Error{path + ": is a scenario already: rehearse simulate " + path};
  }
  return open_below(file, depth);
}

// Hydra's list of what a file lies over: "NAME" (NAME.yaml beside it), "GROUP: NAME"
// (GROUP/NAME.yaml, under the key GROUP), "GROUP@KEY: NAME" (under KEY); `_self_` is the file
// itself, last where it is not said. What is optional or overrides another tool's is not looked
// for.
constexpr std::string_view kBelow = "defaults", kSelf = "_self_";
constexpr int kMostBelow = 16;

struct Below {
  std::string file, under;  // empty: none
};
Below below_of(const JsonValue& item) {
  if (item.is(JsonKind::String)) return {item.text == kSelf ? "" : item.text, ""};
  if (!item.is(JsonKind::Object) || item.members.size() != 1) return {};
  const std::string& key = item.members[0].key;
  const JsonValue& value = item.members[0].value;
  if (!value.is(JsonKind::String) || key.find(' ') != std::string::npos) return {};
  const std::size_t at = key.find('@');
  const std::string group = key.substr(0, at);
  std::string under = at == std::string::npos ? group : key.substr(at + 1);
  std::ranges::replace(under, '/', '.');
  return {(group == "." ? "" : group + "/") + value.text, under + "."};
}

Result<> open_below(OpenedFile& file, int depth) {
  const auto list = std::ranges::find(file.document.members, kBelow, &JsonMember::key);
  if (file.form != FileForm::Yaml || list == file.document.members.end()) return {};
  const bool one = list->value.is(JsonKind::String);
  const std::vector<JsonValue> items = one ? std::vector{list->value} : list->value.items;
  const std::int32_t line = list->line;
  file.document.members.erase(list);
  for (const JsonValue& item : items) {
    const Below named = below_of(item);
    if (named.file.empty()) continue;
    const std::string name = named.file.ends_with(".yaml") ? named.file : named.file + ".yaml";
    const std::filesystem::path path = std::filesystem::path(file.path).parent_path() / name;
    std::error_code none;
    if (depth > kMostBelow || !std::filesystem::is_regular_file(path, none)) {
      return json_error(file.path, line, std::string(kBelow),
                        "it lies over " + json_excerpt(name) + ", which is not beside it");
    }
    Result<OpenedFile> opened = open_file(path.string());
    if (!opened) return opened.error();
    OpenedFile below = std::move(opened).value();
    if (const Result<> parsed = parse_tree(below, depth + 1); !parsed) return parsed;
    file.below.push_back({named.under, std::move(below)});
  }
  return {};
}

// Whether a document has the dotted key: "parallelism.tp".
bool has_key(const JsonValue& document, std::string_view key) {
  const std::size_t dot = key.find('.');
  const JsonMember* member =
      document.is(JsonKind::Object) ? document.find(key.substr(0, dot)) : nullptr;
  if (member == nullptr) return false;
  return dot == std::string_view::npos || has_key(member->value, key.substr(dot + 1));
}
bool has_sign(const Framework& framework, const JsonValue& document) {
  return std::ranges::any_of(framework.signs, [&](const std::vector<std::string>& sign) {
    return std::ranges::all_of(sign,
                               [&](const std::string& key) { return has_key(document, key); });
  });
}

}  // namespace

Result<OpenedFile> open_file(const std::string& path) {
  Result<std::string> text = read_text_file(path, kMostScript);
  if (!text) return text.error();
  OpenedFile file{.path = path,
                  .text = std::move(text).value(),
                  .form = FileForm::Yaml,
                  .document = {},
                  .below = {}};
  if (file.text.find('\0') != std::string::npos) {
    return Error{path + ": holds bytes that are no text: not a configuration"};
  }
  file.form = form_of(path, file.text);
  return file;
}

Result<> parse_tree(OpenedFile& file) {
  return parse_tree(file, 0);
}

bool has_sign(const Framework& framework, const OpenedFile& file) {
  return has_sign(framework, file.document) ||
         std::ranges::any_of(file.below, [&](const FileBelow& below) {
           return below.under.empty() && has_sign(framework, below.file);
         });
}

bool has_any(std::string_view text, const std::vector<std::string>& words) {
  return std::ranges::any_of(
      words, [&](const std::string& word) { return text.find(word) != std::string_view::npos; });
}

}  // namespace rehearse
