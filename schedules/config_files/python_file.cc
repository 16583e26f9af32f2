// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/python_file.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "schedules/config_files/shell/shell_script.h"

namespace rehearse {
namespace {

constexpr std::size_t kMostPythonFiles = 64;
constexpr int kMostFoldersUp = 32, kLongestImportChain = 16;

// "a as b": a, b; "a": a, a.
struct Renamed {
  std::string_view name, as;
};
Renamed renamed(std::string_view part) {
  constexpr std::string_view kAs = " as ";
  const std::size_t at = part.find(kAs);
  if (at == std::string_view::npos) return {part, part};
  std::string_view as = part.substr(at + kAs.size());
  while (as.starts_with(' ')) as.remove_prefix(1);
  return {part.substr(0, part.find(' ')), as};
}

bool is_constant(std::string_view name) {
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return c == '_' || std::isupper(static_cast<unsigned char>(c)) != 0 ||
           std::isdigit(static_cast<unsigned char>(c)) != 0;
  });
}

bool is_file(const std::filesystem::path& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none);
}

// A module below a folder: its file, or that of its package.
std::filesystem::path module_in(const std::filesystem::path& folder, const std::string& relative) {
  if (relative.empty()) return is_file(folder / "__init__.py") ? folder / "__init__.py" : "";
  if (is_file(folder / (relative + ".py"))) return folder / (relative + ".py");
  const std::filesystem::path package = folder / relative / "__init__.py";
  return is_file(package) ? package : "";
}

std::string with_slashes(std::string_view module) {
  std::string path(module);
  std::ranges::replace(path, '.', '/');
  return path;
}

}  // namespace

const PythonFunction* PythonFile::find(std::string_view name) const {
  const auto found = std::ranges::find(functions, name, &PythonFunction::name);
  return found == functions.end() ? nullptr : &*found;
}

std::size_t PythonFile::end_of_block(std::size_t head) const {
  std::size_t end = head + 1;
  while (end < statements.size() && statements[end].indent > statements[head].indent) ++end;
  return end;
}

std::string python_path(std::string_view module) {
  const std::size_t dots = std::min(module.find_first_not_of('.'), module.size());
  std::string path;
  if (dots > 0) path = "./";
  for (std::size_t up = 1; up < dots; ++up) path += "../";
  return path + with_slashes(module.substr(dots)) + ".py";
}

// "from MODULE import a, b as c", "import MODULE as m".
void PythonFiles::read_imports(PythonFile& file, std::string_view row) {
  constexpr std::string_view kFrom = "from ", kWhole = "import ", kImport = " import ";
  if (row.starts_with(kWhole)) {
    for (const std::string_view part : parts_of(row.substr(kWhole.size()))) {
      const Renamed module = renamed(part);
      file.names.modules.emplace(part.substr(0, part.find_first_of(" .,")));
      if (module.as != module.name) {
        file.imports[std::string(module.as)] = {std::string(module.name), ""};
      }
    }
    return;
  }
  const std::size_t names = row.find(kImport);
  if (!row.starts_with(kFrom) || names == std::string_view::npos) return;
  std::string module(row.substr(kFrom.size(), names - kFrom.size()));
  std::erase(module, ' ');
  std::string_view list = row.substr(names + kImport.size());
  if (list.starts_with('(')) list = inside_brackets(list, 0);
  for (const std::string_view part : parts_of(list)) {
    const Renamed one = renamed(part);
    if (one.name == "*") {
      file.all_of.push_back({module, "*"});
    } else {
      file.imports[std::string(one.as)] = {module, std::string(one.name)};
    }
  }
}

const PythonFile& PythonFiles::add(std::string_view text, const std::string& path, bool main) {
  auto& held = files_[path];
  held = std::make_unique<PythonFile>();
  PythonFile& file = *held;
  file.path = path;
  file.statements = python_statements(text);
  for (std::size_t i = 0; i < file.statements.size(); ++i) {
    const PythonStatement& statement = file.statements[i];
    if (statement.indent > 0) continue;
    const std::string_view row = statement.text;
    if (row.starts_with("def ")) {
      const std::size_t open = std::min(row.find('('), row.size());
      file.names.imported.emplace(row.substr(4, open - 4));
      file.functions.push_back({.name = std::string(row.substr(4, open - 4)),
                                .arguments = std::string(inside_brackets(row, open)),
                                .first = i + 1,
                                .last = file.end_of_block(i)});
    }
    read_imports(file, row);
  }
  file.names.values = variables_;
  for (const auto& [as, one] : file.imports) {  // constants of other files
    if (!is_constant(as)) {
      file.names.imported.insert(as);
      continue;
    }
    const PythonFile* from = imported(file, one.module);
    if (from == nullptr || from == &file) continue;
    const auto value = from->names.values.find(one.name);
    if (value != from->names.values.end()) file.names.values.emplace(as, value->second);
  }
  for (const PythonStatement& statement : file.statements) {  // and of this one
    const PythonAssignment one = assignment_of(statement.text);
    if (statement.indent > 0 || one.name.empty()) continue;
    if (main && file.functions.empty()) continue;  // its statements are the recipe
    std::vector<Setting> none;
    std::string value;
    if (file.names.imported.contains(std::string(one.right))) {
      file.aliases.emplace(one.name, one.right);
    } else if (PythonValue("", path, statement.line, file.names, none).scalar(one.right, value)) {
      file.names.values.emplace(one.name, value);
    } else if (std::ranges::all_of(one.right, is_python_word)) {
      file.aliases.emplace(one.name, one.right);
    } else if (one.right.starts_with('[') || one.right.starts_with('(')) {
      file.names.expressions.emplace(one.name, one.right);
    }
  }
  return file;
}

const PythonFile* PythonFiles::imported(const PythonFile& from, std::string_view module) {
  const std::string asked =
      std::filesystem::path(from.path).parent_path().string() + "\n" + std::string(module);
  const auto held = imported_.find(asked);
  if (held != imported_.end()) return held->second;
  const PythonFile* opened = open_import(from, module);
  imported_.emplace(asked, opened);
  return opened;
}

const PythonFile* PythonFiles::open_import(const PythonFile& from, std::string_view module) {
  namespace fs = std::filesystem;
  const std::size_t dots = std::min(module.find_first_not_of('.'), module.size());
  const std::string relative = with_slashes(module.substr(dots));
  fs::path folder = fs::path(from.path).parent_path(), found;
  std::error_code none;
  if (dots > 0) {
    for (std::size_t up = 1; up < dots; ++up) folder = folder / "..";
    found = module_in(fs::absolute(folder, none), relative);
  } else {
    fs::path above = fs::absolute(folder, none);
    for (int up = 0; up < kMostFoldersUp && found.empty(); ++up) {
      found = module_in(above, relative);
      if (above == above.parent_path()) break;
      above = above.parent_path();
    }
  }
  if (found.empty()) return nullptr;
  if (!fs::path(from.path).is_absolute()) found = found.lexically_proximate(fs::current_path(none));
  const std::string path = found.lexically_normal().string();
  if (const auto held = files_.find(path); held != files_.end()) return held->second.get();
  if (files_.size() >= kMostPythonFiles) return nullptr;
  const Result<std::string> text = read_text_file(path, kMostScript);
  return text ? &add(text.value(), path, false) : nullptr;
}

PythonFiles::Found PythonFiles::find(const PythonFile& file, std::string_view name, int depth) {
  if (const PythonFunction* own = file.find(name)) return {&file, own, ""};
  if (depth > kLongestImportChain) return {};
  if (const auto alias = file.aliases.find(name); alias != file.aliases.end()) {
    return find(file, alias->second, depth + 1);
  }
  const std::size_t dot = name.rfind('.');
  const std::string_view known_as = dot == std::string_view::npos ? name : name.substr(0, dot);
  const auto import = file.imports.find(known_as);
  if (import != file.imports.end()) {
    const auto& [module, imported_name] = import->second;
    // "m.f": m is a module, or the name of one in a package.
    const bool of_module = dot != std::string_view::npos;
    const std::string whole = of_module && !imported_name.empty()
                                  ? module + (module.ends_with('.') ? "" : ".") + imported_name
                                  : module;
    const PythonFile* from = imported(file, whole);
    if (from == nullptr || from == &file) return {nullptr, nullptr, python_path(whole)};
    return find(*from, of_module ? name.substr(dot + 1) : std::string_view(imported_name),
                depth + 1);
  }
  for (const PythonImport& all : file.all_of) {
    const PythonFile* from = imported(file, all.module);
    if (from == nullptr || from == &file) continue;
    Found found = find(*from, name, depth + 1);
    if (found.function != nullptr) return found;
  }
  return {};
}

}  // namespace rehearse
