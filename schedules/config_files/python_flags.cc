// SPDX-License-Identifier: Apache-2.0
#include "schedules/config_files/python_flags.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

#include "schedules/base/json_reader.h"
#include "schedules/config_files/document_flags.h"
#include "schedules/config_files/python_file.h"

namespace rehearse {
namespace {

constexpr std::size_t kMostStatements = 100'000;  // read again at every call

// "llama3_8b_pretrain_64gpu_h100": 64; 0: the name does not say.
std::int32_t gpus_in(std::string_view name) {
  for (std::size_t at = name.find("gpu"); at != std::string_view::npos;
       at = name.find("gpu", at + 1)) {
    std::size_t first = at;
    while (first > 0 && std::isdigit(static_cast<unsigned char>(name[first - 1])) != 0) --first;
    std::int32_t gpus = 0;
    std::from_chars(name.data() + first, name.data() + at, gpus);
    if (gpus > 0 && gpus <= 1 << 20) return gpus;
  }
  return 0;
}

// Whether a name stands in a text as a whole.
bool has_word(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos;
       at = text.find(name, at + 1)) {
    const bool begins = at == 0 || !is_python_word(text[at - 1]);
    const std::size_t end = at + name.size();
    if (begins && (end == text.size() || !is_python_word(text[end]))) return true;
  }
  return false;
}

// "ConfigContainer(...)": a class, whose keys are the configuration's.
bool makes_an_object(std::string_view right) {
  const std::size_t open = right.find('(');
  if (open == std::string_view::npos) return false;
  const std::size_t dot = right.substr(0, open).rfind('.');
  const std::size_t first = dot == std::string_view::npos ? 0 : dot + 1;
  return std::isupper(static_cast<unsigned char>(right[first])) != 0;
}

// Reads one function of a file, and those that it calls: of the file, and of files beside it.
class Recipe {
 public:
  Recipe(std::string_view text, const std::string& file,
         const std::map<std::string, std::string>& variables)
      : given_(variables.begin(), variables.end()),
        files_(variables),
        main_(&files_.add(text, file)) {}

  std::vector<std::string_view> names() const {
    std::vector<std::string_view> made;
    for (const PythonFunction& function : main_->functions) made.push_back(function.name);
    return made;
  }
  // A function of the file or one that it imports.
  bool has(std::string_view name) { return files_.find(*main_, name).function != nullptr; }

  // The settings that the function makes, or statements that stand in none.
  Settings read(const std::string& name) {
    if (const PythonFiles::Found found = files_.find(*main_, name); found.function != nullptr) {
      call(found, "", 0, true);
    } else {
      PythonNames names = main_->names;
      block(*main_, 0, main_->statements.size(), names, 0);
    }
    return std::move(made_);
  }

 private:
  void warn(const PythonFile& file, const PythonStatement& statement, const std::string& what) {
    if (made_.warnings.size() < 50) {
      made_.warnings.push_back(file.path + ":" + std::to_string(statement.line) + ": " + what +
                               statement.text.substr(0, 60));
    }
  }

  // The configuration by this name, or the part "cfg.model" as "model."; nothing: another value.
  static std::optional<std::string> part_named(std::string_view word, const PythonNames& names) {
    const std::size_t dot = std::min(word.find('.'), word.size());
    const auto part = names.parts.find(word.substr(0, dot));
    if (part == names.parts.end() || !std::ranges::all_of(word, is_python_word)) return {};
    if (dot == word.size()) return part->second;
    return part->second + std::string(word.substr(dot + 1)) + ".";
  }

  // The function with its defaults, and over them the arguments of the call.
  // `returns`: what it returns is the configuration.
  void call(const PythonFiles::Found& found, std::string_view arguments, int depth, bool returns,
            const PythonFile* from_file = nullptr, const PythonNames* caller = nullptr) {
    if (depth > kDeepestPythonCall) return;
    const PythonFunction& function = *found.function;
    PythonNames inner = found.file->names;
    inner.returns = returns;
    const auto bind = [&](std::string_view name, std::string_view right, const PythonNames& from) {
      std::vector<Setting> none;
      std::string value;
      if (right == kPythonNone)
        inner.values[std::string(name)] = std::string(kPythonNone);
      else if (const auto part = part_named(right, from))
        inner.parts[std::string(name)] = *part;
      else if (PythonValue("", found.file->path, 0, from, none).scalar(right, value) &&
               !given_.contains(name))
        inner.values[std::string(name)] = value;
    };
    std::vector<std::string_view> places;
    for (const std::string_view part : parts_of(function.arguments)) {
      const std::string_view name = part.substr(0, part.find_first_of(":= "));
      places.push_back(name);
      if (const PythonAssignment one = assignment_of(part); !one.name.empty()) {
        bind(name, one.right, found.file->names);
      }
    }
    std::size_t place = 0;
    for (const std::string_view part : parts_of(arguments)) {
      const PythonAssignment one = assignment_of(part);
      const PythonNames& from = caller == nullptr ? found.file->names : *caller;
      if (!one.name.empty()) {
        bind(one.name, one.right, from);
      } else if (place < places.size()) {
        const std::string_view name = places[place++];
        // base(other(), 8): what `other` makes is the configuration that `base` goes on with.
        const bool made =
            place == 1 && caller != nullptr && calls(*from_file, part, from, depth, true);
        if (made)
          inner.parts[std::string(name)] = "";
        else
          bind(name, part, from);
      }
    }
    block(*found.file, function.first, function.last, inner, depth);
  }

  // "NAME(ARGUMENTS)", NAME a function that is found, which is read. False: it is none.
  bool calls(const PythonFile& file, std::string_view text, const PythonNames& names, int depth,
             bool returns) {
    const std::size_t open = text.find('(');
    if (open == std::string_view::npos) return false;
    const std::string_view arguments = inside_brackets(text, open);
    if (open + arguments.size() + 2 != text.size()) return false;
    const std::string_view name = text.substr(0, open);
    if (name.empty() || !std::ranges::all_of(name, is_python_word)) return false;
    const PythonFiles::Found found = files_.find(file, name);
    if (found.function == nullptr) return false;
    call(found, arguments, depth + 1, returns, &file, &names);
    return true;
  }
  // Whether an argument of a call is the configuration, or a part of it.
  static bool takes_a_part(std::string_view text, const PythonNames& names) {
    const std::size_t open = text.find('(');
    if (open == std::string_view::npos) return false;
    return std::ranges::any_of(parts_of(inside_brackets(text, open)), [&](std::string_view part) {
      const PythonAssignment one = assignment_of(part);
      return part_named(one.name.empty() ? part : one.right, names).has_value();
    });
  }
  // Functions of other files that make or change something else than the configuration are not
  // read.
  bool is_of(const PythonFile& file, std::string_view text) const {
    return file.find(text.substr(0, text.find('('))) != nullptr;
  }

  // What a name stands for: a value, or what the configuration says so far.
  std::optional<std::string> value_of(std::string_view name, const PythonNames& names) const {
    if (const auto found = names.values.find(std::string(name)); found != names.values.end()) {
      return found->second;
    }
    if (name.find('.') == std::string_view::npos) return {};
    std::optional<std::string> key = part_named(name, names);
    if (!key) return {};
    key->pop_back();
    const auto said = std::find_if(made_.flags.rbegin(), made_.flags.rend(),
                                   [&](const Setting& flag) { return flag.flag == *key; });
    if (said == made_.flags.rend() || !said->unknown.empty()) return {};
    if (said->null) return std::string(kPythonNone);
    if (said->values.size() != 1) return {};
    return said->values.front();
  }

  // A test on what is known: nothing, where it is another one.
  std::optional<bool> decided(std::string_view test, const PythonNames& names) const {
    const bool negated = test.starts_with("not ");
    if (negated) test.remove_prefix(4);
    constexpr std::string_view kIs = " is None", kIsNot = " is not None",
                               kEquals = " == ", kDiffers = " != ";
    bool truth = false;
    const std::size_t equals = std::min(test.find(kEquals), test.find(kDiffers));
    if (test.ends_with(kIsNot) || test.ends_with(kIs)) {
      const bool not_none = test.ends_with(kIsNot);
      test.remove_suffix(not_none ? kIsNot.size() : kIs.size());
      const std::optional<std::string> one = value_of(test, names);
      if (!one) return {};
      truth = (*one == kPythonNone) != not_none;
    } else if (equals != std::string_view::npos) {
      const std::optional<std::string> one = value_of(test.substr(0, equals), names);
      std::vector<Setting> none;
      std::string other;
      const std::string_view right = test.substr(equals + kEquals.size());
      if (!one || !PythonValue("", "", 0, names, none).scalar(right, other)) return {};
      truth = (*one == other) == test.substr(equals).starts_with(kEquals);
    } else if (test == "True" || test == "False") {
      truth = test == "True";
    } else {
      const std::optional<std::string> one = value_of(test, names);
      if (!one) return {};
      truth = *one != "false" && *one != kPythonNone && *one != "0" && !one->empty();
    }
    return truth != negated;
  }

  // How far a chain of if, elif and else is: none of them ran yet, one did, or nobody knows.
  enum class Branches : std::uint8_t { Open, Taken, Unknown };

  // Whether it ended with a return.
  bool block(const PythonFile& file, std::size_t first, std::size_t last, PythonNames& names,
             int depth) {
    Branches taken = Branches::Open;
    for (std::size_t i = first; i < last; ++i) {  // what is returned is the configuration
      const std::string_view row = file.statements[i].text;
      constexpr std::string_view kReturn = "return ";
      const bool one = row.starts_with(kReturn) &&
                       std::ranges::all_of(row.substr(kReturn.size()), is_python_word);
      if (one) names.parts.emplace(row.substr(kReturn.size()), "");
    }
    for (std::size_t i = first; i < last; ++i) {
      const PythonStatement& statement = file.statements[i];
      const std::string_view row = statement.text;
      const bool opens = row.ends_with(':');
      if (opens && !row.starts_with("with ")) {
        const std::size_t end = std::min(file.end_of_block(i), last);
        const bool otherwise = row == "else:", next = row.starts_with("elif ");
        if (row.starts_with("if ") || next) {
          if (!next) taken = Branches::Open;
          const std::string_view test = row.substr(next ? 5 : 3, row.size() - (next ? 6 : 4));
          const std::optional<bool> holds = decided(test, names);
          if (taken == Branches::Open && !holds) taken = Branches::Unknown;
          if (taken == Branches::Open && holds.value_or(false)) {
            if (block(file, i + 1, end, names, depth)) return true;
            taken = Branches::Taken;
          }
          if (taken == Branches::Unknown) warn(file, statement, "left out: ");
        } else if (otherwise && taken == Branches::Open) {
          if (block(file, i + 1, end, names, depth)) return true;
        } else if (!(otherwise && taken == Branches::Taken) && !row.starts_with("def ")) {
          warn(file, statement, "left out: ");
        }
        i = end - 1;
        continue;
      }
      if (++read_ > kMostStatements) return true;
      one(file, statement, names, depth);
      if (row.starts_with("return")) return true;
    }
    return false;
  }

  void take(const PythonFile& file, const PythonStatement& statement, std::string_view right,
            const PythonNames& names, const std::string& name) {
    PythonValue(right, file.path, statement.line, names, made_.flags).take(name);
  }

  // cfg.a.key = cfg.b.key, where nothing said the latter: it is what b has by itself.
  static bool is_left_to_another(const PythonAssignment& one, const PythonNames& names) {
    const std::size_t left = one.name.rfind('.'), right = one.right.rfind('.');
    return right != std::string_view::npos && left != std::string_view::npos &&
           one.name.substr(left) == one.right.substr(right) && part_named(one.right, names);
  }
  // "a, b = f(...)": names of what is not read.
  static void names_several(std::string_view row, PythonNames& names) {
    const std::size_t equals = row.find(" = ");
    if (equals == std::string_view::npos) return;
    const std::vector<std::string_view> parts = parts_of(row.substr(0, equals));
    if (parts.size() < 2 || !std::ranges::all_of(parts, [](std::string_view part) {
          return std::ranges::all_of(part, is_python_word);
        })) {
      return;
    }
    for (const std::string_view part : parts) names.expressions[std::string(part)] = "";
  }

  // What a name was made of, before something of it is changed: its keys, or a base that is not
  // read.
  void settle(const PythonFile& file, const PythonStatement& statement, std::string_view name,
              PythonNames& names) {
    const auto base = names.expressions.find(std::string(name));
    if (base == names.expressions.end()) return;
    const std::string right = base->second;
    names.expressions.erase(base);
    const auto part = names.parts.find(name);
    if (part != names.parts.end() && makes_an_object(right)) {
      std::string prefix = part->second;
      if (!prefix.empty()) prefix.pop_back();
      return take(file, statement, right, names, prefix);
    }
    warn(file, statement, "what " + right + " sets is not read, what follows is: ");
    const std::string_view function = std::string_view(right).substr(0, right.find('('));
    const std::string wanted = files_.find(file, function).wanted;
    if (!wanted.empty() && made_.missing_base.empty()) {
      made_.missing_base = std::string(function) + " of " + wanted;
    }
  }

  void one(const PythonFile& file, const PythonStatement& statement, PythonNames& names,
           int depth) {
    std::string_view row = statement.text;
    constexpr std::string_view kReturn = "return ";
    if (row.starts_with(kReturn)) {
      row.remove_prefix(kReturn.size());
      if (!calls(file, row, names, depth, names.returns) && names.returns) {
        take(file, statement, row, names, "");
      }
      return;
    }
    if (is_of(file, row) || takes_a_part(row, names)) {
      for (const std::string_view passed : parts_of(inside_brackets(row, row.find('(')))) {
        settle(file, statement, passed.substr(0, passed.find('.')), names);
      }
      if (calls(file, row, names, depth, false)) return;
    }
    const PythonAssignment given = assignment_of(row);
    const std::size_t dot = given.name.find('.');
    if (dot != std::string_view::npos) {
      const std::string_view owner = given.name.substr(0, dot);
      const auto part = names.parts.find(owner);
      if (part == names.parts.end() && !names.parts.empty()) {
        return warn(file, statement, "of no part that is known: ");
      }
      settle(file, statement, owner, names);
      const std::string key =
          (part == names.parts.end() ? "" : part->second) + std::string(given.name.substr(dot + 1));
      const std::optional<std::string> said = value_of(given.right, names);
      if (!said && is_left_to_another(given, names)) {
        std::erase_if(made_.flags, [&](const Setting& flag) { return flag.flag == key; });
        return warn(file, statement, "nobody says it here: ");
      }
      if (!said) return take(file, statement, given.right, names, key);
      PythonNames with = names;  // cfg.a.b = cfg.c.d
      with.values[std::string(given.right)] = *said;
      return take(file, statement, given.right, with, key);
    }
    if (!given.name.empty()) {
      const bool configuration = names.parts.contains(given.name);
      const bool nobody = names.parts.empty();  // nothing says what the configuration is
      if ((configuration || (nobody && is_of(file, given.right))) &&
          calls(file, given.right, names, depth, true)) {
        names.parts.emplace(given.name, "");
        return;
      }
      std::string value;
      if (PythonValue("", file.path, statement.line, names, made_.flags).scalar(given.right, value))
        names.values[std::string(given.name)] = value;
      else if (!has_word(given.right, given.name))
        names.expressions[std::string(given.name)] = std::string(given.right);
      return;
    }
    const bool plain = row.starts_with("\"") || row.starts_with("'") ||
                       row.starts_with("import ") || row.starts_with("from ") || row == "pass" ||
                       row.starts_with("with ");
    names_several(row, names);
    if (!plain) warn(file, statement, "not read: ");
  }

  std::map<std::string, std::string, std::less<>> given_;
  PythonFiles files_;
  const PythonFile* main_;
  Settings made_;
  std::size_t read_ = 0;  // statements
};

}  // namespace

Result<Settings> flags_of_python(std::string_view text, const std::string& file,
                                 const std::string& recipe,
                                 const std::map<std::string, std::string>& variables) {
  Recipe whole(text, file, variables);
  const std::vector<std::string_view> known = whole.names();
  std::string chosen = recipe;
  if (chosen.empty() && known.size() == 1) chosen = known.front();
  if (chosen.empty() && !known.empty()) {
    return Error{file + ": has " + std::to_string(known.size()) + " functions: --recipe " +
                 std::string(known.front()) + ", ..."};
  }
  if (!known.empty() && !whole.has(chosen)) {
    return Error{file + ": no function " + json_excerpt(chosen) + what_is_known(chosen, known)};
  }
  const std::size_t stem = file.rfind('/') == std::string::npos ? 0 : file.rfind('/') + 1;
  if (chosen.empty()) chosen = file.substr(stem, file.rfind('.') - stem);  // statements alone
  Settings made = whole.read(chosen);
  keep_last(made.flags);
  if (made.flags.empty()) {
    return Error{file + ": nothing in it sets a value" +
                 (made.warnings.empty() ? "" : ", " + made.warnings.front())};
  }
  made.flags.insert(made.flags.begin(),
                    {.flag = "recipe", .values = {chosen}, .file = file, .line = 1});
  made.launch.gpus = gpus_in(chosen);
  return made;
}

}  // namespace rehearse
