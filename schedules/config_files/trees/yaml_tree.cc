// SPDX-License-Identifier: Apache-2.0
// The only file that includes yaml-cpp.
#include "schedules/config_files/trees/read_trees.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

namespace rehearse {
namespace {

Error at_line(const std::string& path, int line, const std::string& what) {
  return Error{path + (line > 0 ? ":" + std::to_string(line) : "") + ": " + what};
}

class YamlTree {
 public:
  bool too_large = false;
  int odd_key = 0;  // the line of a key that is no text

  JsonValue value(const YAML::Node& node) {
    JsonValue made{.line = node.Mark().line + 1};
    if (++nodes_ > kMostTreeNodes) too_large = true;
    if (too_large || node.IsNull() || !node.IsDefined()) return made;
    if (node.IsScalar()) {
      made.kind = JsonKind::String;
      made.text = node.Scalar();
    } else if (node.IsSequence()) {
      made.kind = JsonKind::Array;
      for (const YAML::Node& item : node) made.items.push_back(value(item));
    } else {
      made.kind = JsonKind::Object;
      for (const auto& member : node) {
        if (!member.first.IsScalar()) {
          odd_key = member.first.Mark().line + 1;
          continue;
        }
        if (member.first.Scalar() == "<<") {  // the members of another, where this has none
          merge(made, member.second);
          continue;
        }
        JsonMember one{.key = member.first.Scalar(),
                       .line = member.first.Mark().line + 1,
                       .value = value(member.second)};
        if (JsonMember* merged = member_of(made, one.key)) {
          *merged = std::move(one);
        } else {
          made.members.push_back(std::move(one));
        }
      }
    }
    return made;
  }

 private:
  static JsonMember* member_of(JsonValue& object, const std::string& key) {
    const auto found = std::ranges::find(object.members, key, &JsonMember::key);
    return found == object.members.end() ? nullptr : &*found;
  }
  void merge(JsonValue& to, const YAML::Node& node) {
    if (node.IsSequence()) {
      for (const YAML::Node& item : node) merge(to, item);
      return;
    }
    if (!node.IsMap()) return;
    for (JsonMember& member : value(node).members) {
      if (member_of(to, member.key) == nullptr) to.members.push_back(std::move(member));
    }
  }
  std::size_t nodes_ = 0;
};

}  // namespace

Result<JsonValue> read_yaml_tree(std::string_view text, const std::string& path) {
  try {
    YamlTree tree;
    JsonValue made = tree.value(YAML::Load(std::string(text)));
    if (tree.too_large) return Error{path + ": more than 100000 values, aliases written out"};
    if (tree.odd_key > 0) return at_line(path, tree.odd_key, "a key that is no word");
    return made;
  } catch (const YAML::Exception& problem) {
    std::string what = problem.msg;
    std::ranges::replace(what, '\n', ' ');
    return at_line(path, problem.mark.line + 1, "not YAML: " + what);
  }
}

}  // namespace rehearse
