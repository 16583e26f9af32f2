// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/open_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "schedules/base/utf8.h"
#include "schedules/config_files/arguments.h"
#include "schedules/config_files/document_flags.h"
#include "schedules/config_files/opened_file.h"
#include "schedules/config_files/python_flags.h"
#include "schedules/config_files/shell/shell_script.h"

namespace rehearse {
namespace {

constexpr std::size_t kMostPrinted = 4096;  // characters of an error or a warning

class Opener {
 public:
  Opener(const ConfigFiles& asked, const std::vector<Framework>& frameworks)
      : asked_(asked), frameworks_(frameworks) {}

  Result<OpenedConfig> run() {
    std::vector<OpenedFile> files;
    for (const std::string& path : asked_.files) {
      Result<OpenedFile> file = open_file(path);
      if (!file) return file.error();
      files.push_back(std::move(file).value());
    }
    for (OpenedFile& file : files) {
      if (const Result<> read = read_file(file); !read) return read.error();
    }
    if (!asked_.arguments.empty()) {
      std::vector<ShellWord> words;
      for (const std::string& word : asked_.arguments) words.push_back({word, 0});
      if (framework_ == nullptr) choose(words);
      add_arguments(flags_of_words(words, "arguments", takes_nothing(), settings_.warnings));
    }
    if (framework_ == nullptr)
      return Error{"nothing to import: name a file, or arguments behind --"};
    if (!asked_.stage.empty() && !stage_found_) {
      return Error{"--stage " + json_excerpt(asked_.stage) + ": nothing that is read has stages"};
    }
    return OpenedConfig{*framework_, std::move(settings_)};
  }

 private:
  void add(std::vector<Setting> flags) {
    for (Setting& flag : flags) settings_.flags.push_back(std::move(flag));
  }
  // --section.no-flag says that --section.flag is false.
  void add_arguments(std::vector<Setting> flags) {
    for (Setting& flag : flags) {
      std::string positive = formula_name(flag.flag);
      const std::size_t no = positive.find(".no_");
      if (no != std::string::npos && framework_->find(flag.flag) == nullptr) {
        positive.erase(no + 1, 3);
        if (framework_->find(positive) != nullptr && flag.values.empty()) {
          flag.flag = "--" + positive;
          flag.values = {"false"};
        }
      }
    }
    add(std::move(flags));
  }
  std::function<bool(std::string_view)> takes_nothing() const {
    return [this](std::string_view flag) {
      const FlagRow* row = framework_ == nullptr ? nullptr : framework_->find(flag);
      return row != nullptr && row->takes == Takes::Yes;
    };
  }
  // How many of the flags it knows, whether it has such a program, and how many of the flags stand
  // there as they are spelled.
  std::array<std::int64_t, 3> known_flags(const Framework& framework,
                                          const std::vector<ShellWord>& words) const {
    std::int64_t known = 0, spelled = 0;
    const bool starts = std::ranges::any_of(framework.programs, [&](const std::string& program) {
      return matches(program, settings_.program);
    });
    for (const ShellWord& word : words) {
      const std::string flag = word.text.substr(0, word.text.find('='));
      // Flags by their last word are those of documents and recipes, "model.num_layers".
      const bool of_document = flag.find('.') != std::string::npos;
      if (!flag.starts_with("--") || (framework.last_words && !of_document)) continue;
      const FlagRow* row = framework.find(flag);
      if (row == nullptr) continue;
      ++known;
      spelled += row->is_spelled(flag) ? 1 : 0;
    }
    return {known, starts ? 1 : 0, spelled};
  }
  // Whether the flags have one of its signs, "--deepspeed".
  static bool has_flag_sign(const Framework& framework, const std::vector<ShellWord>& words) {
    const auto said = [&](const std::string& flag) {
      return std::ranges::find(words, flag, &ShellWord::text) != words.end();
    };
    return std::ranges::any_of(framework.signs, [&](const std::vector<std::string>& sign) {
      return std::ranges::all_of(sign, said);
    });
  }
  // Whether it knows half of the flags and more, if only that nothing depends on them.
  static bool mostly_known(const Framework& framework, const std::vector<ShellWord>& words) {
    std::int64_t known = 0, flags = 0;
    for (const ShellWord& word : words) {
      if (!word.text.starts_with("--")) continue;
      const std::string flag = word.text.substr(0, word.text.find('='));
      const FlagFamily* family = framework.family(flag);
      ++flags;
      known += framework.find(flag) != nullptr || (family != nullptr && family->pattern != "*");
    }
    return 2 * known >= flags;
  }
  // The framework whose sign is there and that knows most of the flags, or else that knows more of
  // them than any other.
  void choose(const std::vector<ShellWord>& words) {
    std::array<std::int64_t, 3> most{-1, -1, -1};
    for (const Framework& framework : frameworks_) {
      const auto known = known_flags(framework, words);
      if (has_flag_sign(framework, words) && mostly_known(framework, words)) {
        framework_ = &framework;
        return;
      }
      if (known <= most) continue;
      most = known;
      framework_ = &framework;
    }
  }
  Result<> choose(const OpenedFile& file) {
    for (const Framework& framework : frameworks_) {
      if (!has_sign(framework, file)) continue;
      framework_ = &framework;
      return {};
    }
    if (frameworks_.size() == 1) {
      framework_ = &frameworks_.front();
      return {};
    }
    std::string names;
    for (const Framework& framework : frameworks_) {
      names += (names.empty() ? "" : ", ") + framework.title;
    }
    return Error{file.path + ": not a configuration that is known here (" + names +
                 "); --from NAME says of whom it is"};
  }

  Result<> read_file(OpenedFile& file) {
    if (is_tree(file.form)) {
      if (const Result<> made = edit(file); !made) return made;
      if (const Result<> parsed = parse_tree(file); !parsed) return parsed;
    }
    switch (file.form) {
      case FileForm::Shell:
        return read_script(file);
      case FileForm::Arguments:
        return read_arguments(file);
      case FileForm::Python:
        return read_recipe(file);
      case FileForm::Yaml:
      case FileForm::Toml:
      case FileForm::Json:
        break;
    }
    if (framework_ == nullptr) {
      if (const Result<> chosen = choose(file); !chosen) return chosen;
    }
    return read_document(file);
  }

  // What a script before it makes of this file.
  Result<> edit(OpenedFile& file) const {
    if (file_name(edited_.file) != file_name(file.path)) return {};
    Result<std::string> text = edited(file.text, edited_.edits);
    if (!text) return Error{file.path + ": " + text.error().message};
    file.text = std::move(text).value();
    return {};
  }
  static std::string file_name(const std::string& path) {
    return std::filesystem::path(shown_unknown(path)).filename().string();
  }

  Result<> read_script(const OpenedFile& file) {
    Result<ShellScript> script = read_shell_script(file.text, file.path, asked_.variables);
    if (!script) return script.error();
    const Result<LaunchCommand> command =
        launch_command(script.value(), file.path, [&](std::string_view flag) {
          return std::ranges::any_of(frameworks_, [&](const Framework& framework) {
            return framework.find(flag) != nullptr;
          });
        });
    if (!command) return command.error();
    settings_.program = command.value().program;
    if (framework_ == nullptr) {
      choose(command.value().arguments);
      if (const Result<> known = check_program(file, command.value().arguments); !known) {
        return known;
      }
    }
    std::vector<std::string>& warnings = settings_.warnings;
    warnings.insert(warnings.end(), script.value().warnings.begin(), script.value().warnings.end());
    settings_.launch = launched(command.value(), script.value(), warnings);
    for (Setting& one : settings_.launch.environment) one.file = file.path;
    add_arguments(flags_of_words(command.value().arguments, file.path, takes_nothing(), warnings));
    const auto takes_value = [](std::string_view) { return false; };
    // accelerate launch --config_file
    std::vector<Setting> launcher =
        flags_of_words(command.value().launcher, file.path, takes_value, warnings);
    if (const Result<> read = read_named_file(launcher, script.value()); !read) return read;
    std::vector<Setting> flags;
    std::swap(flags, settings_.flags);
    const Result<> read = read_named_file(flags, script.value());
    settings_.flags.insert(settings_.flags.begin(), flags.begin(), flags.end());
    return read;
  }

  // A program that no framework has, whose flags are mostly its own: what is known of them would be
  // another's.
  Result<> check_program(const OpenedFile& file, const std::vector<ShellWord>& words) const {
    const auto [known, starts, spelled] = known_flags(*framework_, words);
    const bool named = !framework_->lookup("refused_programs", settings_.program).is_null();
    if (named || starts > 0 || (known > 0 && mostly_known(*framework_, words))) return {};
    return Error{file.path + ": " + settings_.program +
                 ": no program of a framework that is known here, and most of its flags are "
                 "none's; --from NAME reads it as one's"};
  }

  // A file that a script's flag names: a here-document of the script, or one that is given as well,
  // maybe as what the script makes its own of.
  Result<> read_named_file(std::vector<Setting>& flags, const ShellScript& script) {
    const std::map<std::string, std::string>& documents = script.documents;
    for (Setting& flag : flags) {
      const auto named = [&](const std::string& key) {
        return formula_name(key) == formula_name(flag.flag);
      };
      if (flag.values.size() != 1 || !std::ranges::any_of(framework_->files_in, named)) continue;
      flag.unknown.clear();  // its name may hang on a run; what it says does not
      const auto made = std::ranges::find_if(script.edited, [&](const auto& one) {
        return shown_unknown(one.first) == flag.values[0];
      });
      if (made != script.edited.end()) edited_ = made->second;
      if (asked_.files.size() > 1) continue;
      const auto document = std::ranges::find_if(
          documents, [&](const auto& one) { return shown_unknown(one.first) == flag.values[0]; });
      if (document == documents.end()) {
        const std::string source =
            made == script.edited.end() ? flag.values[0] : shown_unknown(edited_.file);
        return json_error(
            flag.file, flag.line, flag.flag,
            "says more in " + json_excerpt(source) + ": name that file behind this one");
      }
      OpenedFile file{.path = flag.values[0],
                      .text = document->second,
                      .form = FileForm::Json,
                      .document = {},
                      .below = {}};
      if (const Result<> parsed = parse_tree(file); !parsed) return parsed;
      file.path = flag.file;
      if (const Result<> done = read_document(file); !done) return done;
    }
    return {};
  }

  // A recipe is of the framework whose modules it imports.
  Result<> read_recipe(const OpenedFile& file) {
    Result<Settings> read = flags_of_python(file.text, file.path, asked_.recipe, asked_.variables);
    if (!read) return read.error();
    Settings recipe = std::move(read).value();
    if (framework_ == nullptr) {
      std::size_t longest = 0;
      for (const Framework& one : frameworks_) {
        for (const std::string& module : one.modules) {
          const bool imported = has_any(file.text, {"from " + module, "import " + module});
          if (!imported || module.size() <= longest) continue;
          longest = module.size();
          framework_ = &one;
        }
      }
      if (framework_ == nullptr) {
        return Error{file.path +
                     ": imports no module of a framework that is known here; --from "
                     "NAME says of whom it is"};
      }
    }
    if (settings_.launch.gpus == 0) settings_.launch = std::move(recipe.launch);
    for (std::string& warning : recipe.warnings) settings_.warnings.push_back(std::move(warning));
    settings_.missing_base = std::move(recipe.missing_base);
    add(std::move(recipe.flags));
    return {};
  }

  // A file of arguments alone, quoted as in a shell.
  Result<> read_arguments(const OpenedFile& file) {
    Result<ShellScript> script =
        read_shell_script("x.py \\\n" + joined_lines(file.text), file.path, asked_.variables);
    if (!script) return script.error();
    if (script.value().commands.empty()) return Error{file.path + ": no arguments in it"};
    std::vector<ShellWord> words = script.value().commands.front().words;
    words.erase(words.begin());
    for (ShellWord& word : words) word.line = std::max(word.line - 1, 1);
    if (framework_ == nullptr) choose(words);
    add_arguments(flags_of_words(words, file.path, takes_nothing(), settings_.warnings));
    return {};
  }
  static std::string joined_lines(const std::string& text) {
    std::string made;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string row = text.substr(at, end - at);
      at = end + 1;
      if (row.ends_with('\r')) row.pop_back();
      if (row.starts_with('#')) row.clear();
      if (!row.ends_with('\\')) row += " \\";
      made += row + "\n";
    }
    return made;
  }

  Result<> read_document(const OpenedFile& file) {
    // The part that holds flags, and what stands beside it.
    const std::string& root = framework_->flags_in;
    const JsonMember* part = root.empty() ? nullptr : file.document.find(root);
    if (part == nullptr) {
      JsonValue document = file.document;
      if (const Result<> chosen = choose_stage(document, file.path); !chosen) return chosen;
      std::vector<Setting> flags = flags_below(file);
      for (Setting& flag : flags_of_document(document, file.path)) flags.push_back(std::move(flag));
      if (!file.below.empty()) keep_last(flags);
      resolve_interpolations(flags, asked_.variables);
      add(std::move(flags));
      return read_second_file(file);
    }
    std::vector<Setting> flags = flags_of_document(part->value, file.path);
    for (Setting& flag : flags) substitute(flag);
    add(std::move(flags));
    if (const JsonMember* environment = file.document.find("ENV_VARS")) {
      for (Setting& one : flags_of_document(environment->value, file.path)) {
        settings_.launch.environment.push_back(std::move(one));
      }
    }
    return {};
  }
  // The flags of the files that it lies over.
  static std::vector<Setting> flags_below(const OpenedFile& file) {
    std::vector<Setting> all;
    for (const auto& [under, below] : file.below) {
      std::vector<Setting> flags = flags_below(below);
      for (Setting& flag : flags_of_document(below.document, below.path)) {
        flags.push_back(std::move(flag));
      }
      for (Setting& flag : flags) {
        flag.flag = under + flag.flag;
        all.push_back(std::move(flag));
      }
    }
    return all;
  }
  // Takes from a list of stages the one that is asked for, else the first; the others are named.
  Result<> choose_stage(JsonValue& document, const std::string& path) {
    const std::string& key = framework_->stages_in;
    const auto list = std::ranges::find(document.members, key, &JsonMember::key);
    if (key.empty() || list == document.members.end() || !list->value.is(JsonKind::Array)) {
      return {};
    }
    std::vector<JsonValue>& stages = list->value.items;
    std::vector<std::string> names;
    for (const JsonValue& stage : stages) {
      const JsonMember* name = stage.is(JsonKind::Object) ? stage.find("name") : nullptr;
      names.push_back(name == nullptr ? "" : scalar_text(name->value));
    }
    if (stages.empty()) return {};
    stage_found_ = true;
    const auto named = std::ranges::find(names, asked_.stage);
    if (!asked_.stage.empty() && named == names.end()) {
      const std::vector<std::string_view> known(names.begin(), names.end());
      return Error{path + ": --stage " + json_excerpt(asked_.stage) + ": no such stage" +
                   what_is_known(asked_.stage, known)};
    }
    const std::size_t chosen =
        asked_.stage.empty() ? 0 : static_cast<std::size_t>(named - names.begin());
    if (stages.size() > 1) {
      std::string others;
      for (std::size_t i = 0; i < names.size(); ++i) {
        if (i != chosen) others += (others.empty() ? "" : ", ") + json_excerpt(names[i]);
      }
      settings_.warnings.push_back(path + ": of its stages " + json_excerpt(names[chosen]) +
                                   " is read; --stage NAME reads another: " + others);
    }
    stages = {stages[chosen]};
    return {};
  }
  // A key whose value names a file that lies over this one: beside it, or where the user stands.
  Result<> read_second_file(const OpenedFile& file) {
    for (const std::string& key : framework_->files_in) {
      const JsonMember* member = file.document.find(key);
      if (member == nullptr || !member->value.is(JsonKind::String)) continue;
      const std::string& named = member->value.text;
      const bool given = std::ranges::any_of(asked_.files, [&](const std::string& path) {
        return std::filesystem::path(path).filename() == std::filesystem::path(named).filename();
      });
      if (given || seconds_++ > 0) continue;
      std::error_code none;
      std::filesystem::path path = std::filesystem::path(file.path).parent_path() / named;
      if (!std::filesystem::exists(path, none)) path = named;
      if (!std::filesystem::exists(path, none)) {
        return json_error(file.path, member->line, key,
                          "no such file: " + json_excerpt(named) + ": name it behind this one");
      }
      Result<OpenedFile> opened = open_file(path.string());
      if (!opened) return opened.error();
      OpenedFile second = std::move(opened).value();
      if (!is_tree(second.form)) {
        return json_error(file.path, member->line, key,
                          json_excerpt(named) + " is no table of keys");
      }
      if (const Result<> parsed = parse_tree(second); !parsed) return parsed;
      if (const Result<> read = read_document(second); !read) return read;
    }
    return {};
  }
  // ${NAME} is a variable of the shell that starts it.
  void substitute(Setting& flag) const {
    for (std::string& value : flag.values) {
      const std::size_t open = value.find("${");
      if (open == std::string::npos) continue;
      const std::size_t close = value.find('}', open);
      if (close == std::string::npos) continue;
      const std::string name = value.substr(open + 2, close - open - 2);
      const auto given = asked_.variables.find(name);
      if (given == asked_.variables.end())
        flag.unknown = name;
      else
        value = value.substr(0, open) + given->second + value.substr(close + 1);
    }
  }

  const ConfigFiles& asked_;
  const std::vector<Framework>& frameworks_;
  const Framework* framework_ = nullptr;
  Settings settings_;
  EditedFile edited_;         // what the script makes a file of that a flag names
  bool stage_found_ = false;  // a list of stages
  int seconds_ = 0;           // files that others name
};

}  // namespace

Result<std::vector<Framework>> known_frameworks(const std::string& named) {
  std::vector<Framework> found;
  const std::vector<std::string> names = framework_names();
  for (const std::string& name : names) {
    if (!named.empty() && name != named) continue;
    Result<Framework> read = read_framework(name);
    if (!read) return read.error();
    found.push_back(std::move(read).value());
  }
  if (found.empty()) {
    const std::vector<std::string_view> known(names.begin(), names.end());
    return Error{"--from " + json_excerpt(named) + ": no such framework" +
                 what_is_known(named, known)};
  }
  return found;
}

Result<OpenedConfig> open_config(const ConfigFiles& files,
                                 const std::vector<Framework>& frameworks) {
  Result<OpenedConfig> opened = Opener(files, frameworks).run();
  // What a file says stands in them word for word, and words of a file may go on over lines.
  if (!opened) {
    Error error = opened.error();
    error.message = printable(error.message, kMostPrinted);
    return error;
  }
  OpenedConfig config = std::move(opened).value();
  for (std::string& warning : config.settings.warnings) warning = printable(warning, kMostPrinted);
  return config;
}

Result<OpenedConfig> open_config(const ConfigFiles& files) {
  const Result<std::vector<Framework>> frameworks = known_frameworks(files.framework);
  if (!frameworks) return frameworks.error();
  return open_config(files, frameworks.value());
}

}  // namespace rehearse
