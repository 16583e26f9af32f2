// SPDX-License-Identifier: Apache-2.0
#include "schedules/ir/bucket_words.h"

#include <utility>

namespace rehearse {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

std::string bucket_legend(const std::set<std::string>& names) {
  std::string text;
  const auto add = [&](const std::string& name, const std::string& means) {
    text += (text.empty() ? "buckets of parameters: " : ", ") + name + " " + means;
  };
  bool layer = false, experts = false, several = false;  // one of each is explained
  for (const std::string& name : names) {
    const std::string number = name.substr(name.empty() ? 0 : 1);
    if (name == "E") {
      add(name, "the embedding");
    } else if (name == "H") {
      add(name, "the head");
    } else if (name == "T") {
      add(name, "the table of embedding and head");
    } else if (name == "XH") {
      add(name, "experts behind the last layer");
    } else if (name.starts_with('L') && is_number(number)) {
      if (!std::exchange(layer, true)) add(name, "layer " + number);
    } else if (name.starts_with('X') && is_number(number)) {
      if (!std::exchange(experts, true)) add(name, "experts of layer " + number);
    } else if (!name.empty() && !std::exchange(several, true)) {
      add(name, "several parts of the model at once");
    }
  }
  return text;
}

}  // namespace rehearse
