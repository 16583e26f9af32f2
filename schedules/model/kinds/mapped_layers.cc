// SPDX-License-Identifier: Apache-2.0
#include "schedules/model/kinds/mapped_layers.h"

#include <algorithm>

namespace rehearse {
namespace {

constexpr std::int64_t kMostLayers = 4096;

}  // namespace

MappedLayers::Choice MappedLayers::choice_of(const std::string& name) {
  Choice choice{.object = mapping().given("choose")->given(name)};
  if (choice.object == nullptr || choice.object->given("from") == nullptr) {
    fault(mapping(), "choose." + name, "is chosen by a layer, and has no `from`");
    return choice;
  }
  for (const JsonValue& way : choice.object->given("from")->items) {
    if (const JsonValue* expression = way.given("expression")) {
      choice.expression = expression;
      return choice;
    }
    const JsonValue* key = way.given("key");
    if (key == nullptr) {
      fault(way, "choose." + name + ".from", "has a key or an expression");
      return choice;
    }
    const ExpressionValue& given = named(key->text);
    if (given.kind == ExpressionValue::Kind::Null) continue;
    if (const JsonValue* letters = way.given("letters")) {
      return by_letters(choice, way, *letters, key->text, given.word);
    }
    return by_words(choice, way, key->text, given);
  }
  fault(*choice.object, "choose." + name + ".from", "the config has none of its keys");
  return choice;
}

MappedLayers::Choice MappedLayers::by_letters(Choice choice, const JsonValue& from,
                                              const JsonValue& letters, const std::string& key,
                                              std::string pattern) {
  const JsonValue *ends = from.given("ends_at"), *ignores = from.given("ignores");
  if (ends != nullptr) pattern = pattern.substr(0, pattern.find(ends->text));
  for (const char letter : pattern) {
    if (ignores != nullptr && ignores->text.find(letter) != std::string::npos) continue;
    const JsonValue* way = letters.given(std::string(1, letter));
    if (way == nullptr) {
      fail(key,
           json_excerpt(std::string(1, letter)) + " is no letter of a layer of " +
               text_of("model_type"),
           true);
      break;
    }
    choice.ways.emplace_back(way->text, ExpressionValue::of_word(std::string(1, letter)));
  }
  return choice;
}

MappedLayers::Choice MappedLayers::by_words(Choice choice, const JsonValue& from,
                                            const std::string& key, const ExpressionValue& given) {
  const JsonValue* words = from.given("words");
  if (words == nullptr) {
    fault(from, "choose.from", "a key needs words or letters");
    return choice;
  }
  for (const ExpressionValue& item : given.items) {
    const std::string word = item.kind == ExpressionValue::Kind::Word ? item.word : shown(item);
    const JsonValue* way = words->given(word);
    if (way == nullptr) {
      std::vector<std::string_view> known;
      for (const JsonMember& member : words->members) known.push_back(member.key);
      fail(key,
           json_excerpt(word) + " is no layer of " + text_of("model_type") +
               what_is_known(word, known),
           true);
      break;
    }
    choice.ways.emplace_back(way->text, item);
  }
  return choice;
}

std::int64_t MappedLayers::layer_count(const std::map<std::string, Choice>& choices) {
  if (const JsonValue* layers = mapping().given("layers")) return whole(*layers, "layers");
  for (const auto& [name, choice] : choices) {
    if (choice.expression == nullptr) return static_cast<std::int64_t>(choice.ways.size());
  }
  fault(mapping(), "layers", "nothing says how many there are");
  return 0;
}

void MappedLayers::read_layers() {
  if (!layers_.empty() || !ok()) return;
  std::map<std::string, Choice> choices;
  for (const JsonMember& member : mapping().given("choose")->members) {
    choices.emplace(member.key, choice_of(member.key));
    if (!ok()) return;
  }
  const std::int64_t count = layer_count(choices);
  if (ok() && (count < 1 || count > kMostLayers)) {
    fail("model_type", std::to_string(count) + " layers are not between 1 and 4096");
  }
  for (std::int64_t i = 0; i < count && ok(); ++i) {
    layers_.push_back(blocks_of([&](const std::string& name) -> std::string {
      const Choice& choice = choices.at(name);
      at_layer(i, {});
      if (choice.expression != nullptr) {
        const ExpressionValue way = evaluate(*choice.expression, "choose." + name + ".from");
        return way.word;
      }
      if (static_cast<std::size_t>(i) >= choice.ways.size()) {
        fail("model_type", "choose." + name + ": a list has " + std::to_string(choice.ways.size()) +
                               " items for " + std::to_string(count) + " layers");
        return "";
      }
      const auto& [way, word] = choice.ways[static_cast<std::size_t>(i)];
      at_layer(i, word);
      return way;
    }));
  }
}

void MappedLayers::read_outer() {
  if (!ok()) return;
  at_layer(0, {});
  const JsonValue* given = mapping().given("stream")->given("streams");
  streams_ = given == nullptr ? 1 : whole(*given, "stream.streams");
  if (ok() && streams_ < 1) fail(given->text, "0 is below 1");
  at_embedding_ = outer_kinds("at_embedding");
  at_head_ = outer_kinds("at_head");
}

std::vector<ChosenKind> MappedLayers::outer_kinds(const std::string& place) {
  std::vector<ChosenKind> kinds;
  const JsonValue* list = mapping().given(place);
  if (list == nullptr) return kinds;
  for (const JsonValue& object : list->items) {
    const JsonValue* given = object.given("times");
    const std::int64_t times = given == nullptr ? 1 : whole(*given, place + ".times");
    if (times > kMostLayers) fail(given->text, "is beyond 4096");
    for (std::int64_t k = 0; k < times && ok(); ++k) {
      std::optional<ChosenKind> chosen = chosen_of(object, place);
      if (!chosen) break;
      if (given != nullptr) chosen->number = k;
      kinds.push_back(std::move(*chosen));
    }
  }
  return kinds;
}

void MappedLayers::bind(ChosenKind& chosen, const JsonValue* given, const std::string& place) {
  const LayerKind& kind = *chosen.bound.kind;
  chosen.bound.values.assign(kind.symbols.size(), 0);
  const JsonValue nothing{.kind = JsonKind::Object};
  const JsonValue& bindings = given == nullptr ? nothing : *given;
  for (const JsonMember& member : bindings.members) {
    if (kind.symbol(member.key) < 0) {
      fault(member.value, place + ".bind." + member.key, "is no symbol of kind " + kind.name);
    }
  }
  std::vector<ExpressionValue> known(kind.symbols.size());
  for (std::size_t i = 0; i < kind.symbols.size() && ok(); ++i) {
    const std::string& symbol = kind.symbols[i];
    const std::string at = place + ".bind." + symbol;
    ExpressionValue value;
    if (const JsonValue* expression = bindings.given(symbol)) {
      value = evaluate(*expression, at);
    } else if (symbol == "h") {
      value = ExpressionValue::of(static_cast<double>(hidden()));
    } else if (kind.otherwise[i].given()) {
      const Result<ExpressionValue> otherwise = kind.otherwise[i].value(known);
      if (otherwise) value = otherwise.value();
    }
    if (!ok()) return;
    known[i] = value;
    if (value.kind == ExpressionValue::Kind::Word) {
      chosen.words.emplace_back(symbol, value.word);
      continue;
    }
    if (!is_size(value)) {
      const JsonValue* expression = bindings.given(symbol);
      fail("model_type", at + " is " + shown(value) + ", no whole number from 0 to 2^30" +
                             (expression == nullptr ? "" : with_values_of(expression->text)));
      return;
    }
    chosen.bound.values[i] = static_cast<std::int64_t>(value.number);
  }
}

std::vector<LayerBlock> MappedLayers::blocks_of(const WayOf& way_of) {
  std::vector<LayerBlock> blocks;
  for (const JsonValue& parts : mapping().given("layer")->items) {
    LayerBlock block;
    for (const JsonValue& part : parts.items) {
      const std::size_t colon = part.text.find(':');
      const std::string what = part.text.substr(0, colon);
      std::string name = colon == std::string::npos ? "" : part.text.substr(colon + 1);
      if (const std::size_t at = name.find('@'); at != std::string::npos) {  // NAME@CHOICE.WAY
        const std::size_t dot = name.find('.', at);
        const std::string choice = name.substr(at + 1, dot - at - 1);
        if (dot == std::string::npos || mapping().given("choose")->given(choice) == nullptr) {
          fault(part, "layer", json_excerpt(part.text) + " names no way of a choice");
          return blocks;
        }
        if (way_of(choice) != name.substr(dot + 1)) continue;
        name = name.substr(0, at);
      }
      if (what == "norm") {
        block.norms.push_back(name);
      } else if (what == "norm_after") {
        block.norms_after.push_back(name);
      } else if (what == "choose" && mapping().given("choose")->given(name) != nullptr) {
        const std::string way = way_of(name);
        if (!ok()) return blocks;
        if (std::optional<ChosenKind> chosen = chosen_of(name, way)) {
          block.chosen.push_back(std::move(*chosen));
        }
      } else {
        fault(part, "layer", json_excerpt(part.text) + " is no norm:, norm_after: or choose:");
      }
    }
    if (!block.chosen.empty()) blocks.push_back(std::move(block));
  }
  return blocks;
}

std::optional<ChosenKind> MappedLayers::chosen_of(const std::string& name, const std::string& way) {
  const std::string place = "choose." + name + "." + way;
  const JsonValue* object = mapping().given("choose")->given(name)->given(way);
  if (object == nullptr) {
    fault(mapping(), "choose." + name, json_excerpt(way) + " is no way of it");
    return {};
  }
  return chosen_of(*object, place);
}

std::optional<ChosenKind> MappedLayers::chosen_of(const JsonValue& object,
                                                  const std::string& place) {
  const JsonValue *named_kind = object.given("kind"), *when = object.given("when");
  if (named_kind == nullptr || (when != nullptr && whole(*when, place + ".when") == 0)) return {};
  const Result<const LayerKind*> kind = layer_kind(named_kind->text);
  if (!kind) {
    fault(object, place + ".kind", kind.error().message);
    return {};
  }
  ChosenKind chosen;
  chosen.bound.kind = kind.value();
  if (const JsonValue* module = object.given("name")) chosen.module = module->text;
  bind(chosen, object.given("bind"), place);
  if (!ok()) return {};
  if (const Result<> sound = check_bound(chosen.bound); !sound) {
    fail("model_type", place + ": " + sound.error().message);
    return {};
  }
  return chosen;
}

}  // namespace rehearse
