// SPDX-License-Identifier: Apache-2.0
// Which way every layer of a config takes: its blocks, and the kinds with their symbols in them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "schedules/model/kinds/mapped_values.h"

namespace rehearse {

// One way that a layer's block takes: a kind with its symbols.
struct ChosenKind {
  BoundKind bound;
  std::string module;
  SymbolWords words;                   // of symbols that are words
  std::optional<std::int64_t> number;  // of those that stand several times outside of layers
};

// What stands between two residual sums.
struct LayerBlock {
  std::vector<std::string> norms, norms_after;
  std::vector<ChosenKind> chosen;
};

class MappedLayers : public MappedValues {
 public:
  using MappedValues::MappedValues;

  // Nothing is there before both have been called.
  void read_layers();
  void read_outer();
  // None: the way is no kind, and its block is not there.
  std::optional<ChosenKind> chosen_of(const std::string& name, const std::string& way);

 protected:
  std::vector<std::vector<LayerBlock>> layers_;
  std::int64_t streams_ = 1;
  std::vector<ChosenKind> at_embedding_, at_head_;

 private:
  // The words that a config gives a choice, by layer; none: it is silent, or has an expression.
  struct Choice {
    const JsonValue* object = nullptr;
    std::vector<std::pair<std::string, ExpressionValue>> ways;  // by layer: way, the config's word
    const JsonValue* expression = nullptr;
  };
  // The way that a choice takes in the layer at hand.
  using WayOf = std::function<std::string(const std::string& choice)>;

  Choice choice_of(const std::string& name);
  Choice by_letters(Choice choice, const JsonValue& from, const JsonValue& letters,
                    const std::string& key, std::string pattern);
  Choice by_words(Choice choice, const JsonValue& from, const std::string& key,
                  const ExpressionValue& given);
  std::int64_t layer_count(const std::map<std::string, Choice>& choices);
  std::vector<ChosenKind> outer_kinds(const std::string& place);
  void bind(ChosenKind& chosen, const JsonValue* given, const std::string& place);
  std::vector<LayerBlock> blocks_of(const WayOf& way_of);
  std::optional<ChosenKind> chosen_of(const JsonValue& object, const std::string& place);
};

}  // namespace rehearse
