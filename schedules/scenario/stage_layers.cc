// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/stage_layers.h"

#include <algorithm>
#include <string>

namespace rehearse {
namespace {

constexpr std::size_t kMaxExpanded = 1 << 18;  // characters: far beyond any pipeline

// Repeats are written out: "(t|)*2" gives "t|t|".
class Expander {
 public:
  explicit Expander(std::string_view layout) : layout_(layout) {}

  Result<std::string> expand() {
    std::string text = sequence(0);
    if (problem_.empty() && at_ < layout_.size()) problem_ = "a ) without its (";
    if (!problem_.empty()) return Error{problem_};
    return text;
  }

 private:
  // Up to the closing parenthesis or the end.
  std::string sequence(int depth) {
    std::string text;
    if (depth > 8) problem_ = "parentheses nested deeper than 8";
    while (problem_.empty() && at_ < layout_.size() && layout_[at_] != ')') {
      std::string item = this->item(depth);
      const std::size_t times = repeats();
      if (text.size() + item.size() * times > kMaxExpanded) {
        problem_ = "more than 262144 entries when written out";
        break;
      }
      for (std::size_t i = 0; i < times; ++i) text += item;
    }
    return text;
  }

  std::string item(int depth) {
    const char c = layout_[at_++];
    if (c == ' ' || c == ',') return "";
    if (c == 'E' || c == 't' || c == 'm' || c == 'L' || c == '|') return std::string(1, c);
    if (c != '(') {
      problem_ = std::string("unexpected '") + (c > ' ' && c < 0x7f ? c : '?') +
                 "', only E, t, m, L, |, ( ) and *N mean something";
      return "";
    }
    std::string inner = sequence(depth + 1);
    if (problem_.empty() && at_ >= layout_.size()) problem_ = "a ( without its )";
    ++at_;
    return inner;
  }

  // "*12" after an item; 1 where there is none.
  std::size_t repeats() {
    if (at_ >= layout_.size() || layout_[at_] != '*') return 1;
    const std::size_t first = ++at_;
    std::size_t times = 0;
    while (at_ < layout_.size() && layout_[at_] >= '0' && layout_[at_] <= '9') {
      times =
          std::min(times * 10 + static_cast<std::size_t>(layout_[at_++] - '0'), kMaxExpanded + 1);
    }
    if (at_ == first || times == 0) problem_ = "a * without a count of at least 1";
    return times;
  }

  std::string_view layout_;
  std::size_t at_ = 0;
  std::string problem_;
};

}  // namespace

std::vector<std::int32_t> default_stage_layers(std::int32_t layers, std::int32_t chunks) {
  const auto k = static_cast<std::size_t>(chunks);
  if (layers % chunks == 0) return std::vector<std::int32_t>(k, layers / chunks);
  const std::int32_t slots = layers + 2;
  std::vector<std::int32_t> shares(k, slots / chunks);
  for (std::size_t i = 0; i < static_cast<std::size_t>(slots % chunks); ++i) ++shares[i];
  --shares.front();
  --shares.back();
  return shares;
}

Result<StageLayout> parse_layout(std::string_view layout) {
  const Result<std::string> expanded = Expander(layout).expand();
  if (!expanded) return expanded.error();
  const std::string& text = expanded.value();
  if (text.empty() || text.front() != 'E' || text.find('E', 1) != std::string::npos) {
    return Error{"a layout begins with its one E"};
  }
  if (text.back() != 'L' || text.find('L') != text.size() - 1) {
    return Error{"a layout ends with its one L"};
  }
  StageLayout made{.layers = {0}};
  for (const char c : text) {
    const auto chunk = static_cast<std::int32_t>(made.layers.size()) - 1;
    if (c == '|') made.layers.push_back(0);
    if (c == 't') {
      if (made.prediction_layers > 0) return Error{"a t behind an m: m predicts from the last t"};
      ++made.layers.back();
    }
    if (c != 'm') continue;
    if (made.prediction_layers > 0 && made.prediction_stage != chunk) {
      return Error{"m in two chunks: all of them stand in one"};
    }
    made.prediction_stage = chunk;
    ++made.prediction_layers;
  }
  if (made.prediction_stage == 0 && made.layers.size() > 1) {
    return Error{"m in the first of several chunks"};
  }
  return made;
}

std::string layout_text(const std::vector<std::int32_t>& layers, std::int32_t prediction_stage,
                        std::int32_t prediction_layers) {
  std::string text = "E";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    text += i == 0 ? "" : "|";
    if (layers[i] > 0) text += "t*" + std::to_string(layers[i]);
    if (static_cast<std::int32_t>(i) == prediction_stage) {
      text += "m*" + std::to_string(prediction_layers);
    }
  }
  return text + "L";
}

std::vector<std::int32_t> usual_stage_layers(const Plan& plan) {
  std::int32_t layers = 0;
  for (const std::int32_t share : plan.stage_layers) layers += share;
  const auto chunks = static_cast<std::int32_t>(plan.stage_layers.size());
  return chunks == 0 ? plan.stage_layers : default_stage_layers(layers, chunks);
}

std::string layers_text(const Plan& plan) {
  if (plan.stage_layers == usual_stage_layers(plan)) return {};
  return ", layers " +
         layout_text(plan.stage_layers, plan.prediction_stage, plan.prediction_layers);
}

}  // namespace rehearse
