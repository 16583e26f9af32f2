// SPDX-License-Identifier: Apache-2.0
// A config read by its mapping: symbols of every layer, the transformer they make, the tensors that
// its files have.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "schedules/model/kinds/mapping.h"
#include "schedules/model/near_miss.h"

namespace rehearse {
namespace {

constexpr double kMostOfAny = 1 << 30;
constexpr std::int64_t kMostLayers = 4096;

ExpressionValue value_of(const JsonValue& json) {
  switch (json.kind) {
    case JsonKind::Bool:
      return ExpressionValue::of(json.boolean ? 1 : 0);
    case JsonKind::Integer:
    case JsonKind::Number:
      return ExpressionValue::of(json.number);
    case JsonKind::String:
      return ExpressionValue::of_word(json.text);
    case JsonKind::Array: {
      ExpressionValue list{.kind = ExpressionValue::Kind::List};
      for (const JsonValue& item : json.items) list.items.push_back(value_of(item));
      return list;
    }
    case JsonKind::Null:
    case JsonKind::Object:
      break;
  }
  return {};
}

// One way that a layer's block takes: a kind with its symbols.
struct Chosen {
  BoundKind bound;
  std::string module;
  SymbolWords words;                   // of symbols that are words
  std::optional<std::int64_t> number;  // of those that stand several times outside of layers
};

struct Block {
  std::vector<std::string> norms, norms_after;
  std::vector<Chosen> chosen;
};

class MappedReader {
 public:
  MappedReader(const Mapping& mapping, const JsonValue& object, std::string key, JsonReport& report)
      : mapping_(mapping.document),
        path_(mapping.path),
        object_(object),
        key_(std::move(key)),
        report_(report) {
    read_values();
  }

  bool ok() const { return report_.ok(); }

  MappedModel model(const std::string& name) {
    MappedModel read;
    read_layers();
    read_outer();
    if (!ok()) return read;
    Transformer base = common(name);
    std::vector<Facts> facts;
    for (const std::vector<Block>& layer : layers_) facts.push_back(facts_of(base, layer));
    if (!ok()) return read;
    read.model = joined(std::move(base), facts);
    if (ok()) predictions(read.model);
    return read;
  }

  std::vector<FileTensor> tensors() {
    read_layers();
    read_outer();
    std::vector<FileTensor> all;
    if (!ok()) return all;
    const std::int64_t h = hidden(), vocabulary = vocabulary_size();
    add_outer(all, "embedding", {vocabulary, h}, false);
    for (const Chosen& chosen : at_embedding_) add_kind(all, "", chosen, chosen.number);
    for (std::size_t i = 0; i < layers_.size(); ++i) add_layer(all, static_cast<std::int64_t>(i));
    for (const Chosen& chosen : at_head_) add_kind(all, "", chosen, chosen.number);
    add_outer(all, "final_norm", {h}, true);
    if (!tied()) add_outer(all, "head", {vocabulary, h}, false);
    return all;
  }

 private:
  // --- The config's keys, as the mapping knows them

  void take(const std::string& name, const JsonValue& value) {
    if (value.is(JsonKind::Object)) {
      for (const JsonMember& member : value.members) take(name + "." + member.key, member.value);
      return;
    }
    if (value.is(JsonKind::Array) && std::ranges::any_of(value.items, [](const JsonValue& item) {
          return item.is(JsonKind::Object);
        })) {
      return take_list(name + ".", value);
    }
    const auto known = std::ranges::find(names_, name);
    if (known == names_.end()) return;
    values_[static_cast<std::size_t>(known - names_.begin())] = value_of(value);
  }

  // A list of objects: of each path below it that the mapping knows, the list of what they say.
  void take_list(const std::string& prefix, const JsonValue& list) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (!names_[i].starts_with(prefix)) continue;
      values_[i] = {.kind = ExpressionValue::Kind::List};
      for (const JsonValue& item : list.items) {
        values_[i].items.push_back(below(item, std::string_view(names_[i]).substr(prefix.size())));
      }
    }
  }
  static ExpressionValue below(const JsonValue& object, std::string_view path) {
    const std::size_t dot = path.find('.');
    const JsonValue* member =
        object.is(JsonKind::Object) ? object.given(path.substr(0, dot)) : nullptr;
    if (member == nullptr) return {};
    return dot == std::string_view::npos ? value_of(*member) : below(*member, path.substr(dot + 1));
  }

  void read_values() {
    const auto define = [&](const std::string& name, const JsonValue& value) {
      names_.push_back(name);
      values_.push_back(value_of(value));
    };
    for (const JsonMember& member : mapping_.given("defaults")->members) {
      define(member.key, member.value);
    }
    names_.emplace_back("i");
    names_.emplace_back("word");
    values_.resize(names_.size());
    const JsonValue* aliases = mapping_.given("aliases");
    for (const JsonMember& member : object_.members) {
      const JsonValue* alias = aliases == nullptr ? nullptr : aliases->given(member.key);
      take(alias == nullptr ? member.key : alias->text, member.value);
    }
  }

  std::int32_t line_of(const std::string& name) const {
    const JsonMember* member = object_.find(name);
    return member == nullptr ? object_.line : member->line;
  }
  void fail(const std::string& name, const std::string& what, bool unsupported = false) {
    report_.fail(line_of(name), join_key(key_, name), what, unsupported);
  }
  // A fault of the mapping's own: its file and place.
  void fault(const JsonValue& at, const std::string& place, const std::string& what) {
    if (ok()) {
      report_.fail(object_.line, join_key(key_, "model_type"),
                   json_error(path_, at.line, place, what).message);
    }
  }

  ExpressionValue evaluate(const JsonValue& expression, const std::string& place) {
    const std::string& text = expression.text;
    auto known = expressions_.find(text);
    if (known == expressions_.end()) {
      Result<Expression> read = Expression::read(text, names_);
      if (!read) {
        fault(expression, place, read.error().message);
        return {};
      }
      known = expressions_.emplace(text, std::move(read).value()).first;
    }
    const Result<ExpressionValue> value = known->second.value(values_);
    if (!value) {
      fault(expression, place, value.error().message + with_values(known->second));
      return {};
    }
    return value.value();
  }
  std::string with_values(const Expression& expression) const {
    std::string text;
    for (const std::int32_t slot : expression.slots()) {
      const auto at = static_cast<std::size_t>(slot);
      text += (text.empty() ? "; " : ", ") + names_[at] + " = " + shown(values_[at]);
    }
    return text;
  }
  std::int64_t whole(const JsonValue& expression, const std::string& place) {
    const ExpressionValue value = evaluate(expression, place);
    const bool fits = value.kind == ExpressionValue::Kind::Number && value.number >= 0 &&
                      value.number <= kMostOfAny && value.number == std::floor(value.number);
    if (!fits && ok()) {
      const auto known = expressions_.find(expression.text);
      fail("model_type", place + ": " + json_excerpt(expression.text) + " is " + shown(value) +
                             ", no whole number from 0 to 2^30" + with_values(known->second));
    }
    return fits ? static_cast<std::int64_t>(value.number) : 0;
  }
  std::int64_t of_key(std::string_view name, std::int64_t least) {
    const JsonValue key{.kind = JsonKind::String, .text = std::string(name)};
    const std::int64_t value = whole(key, std::string(name));
    if (ok() && value < least) {
      fail(std::string(name), std::to_string(value) + " is below " + std::to_string(least));
    }
    return value;
  }
  std::string text_of(std::string_view key) const {
    const JsonValue* value = mapping_.given(key);
    return value == nullptr ? std::string() : value->text;
  }
  std::int64_t hidden() { return of_key(mapping_.given("stream")->given("h")->text, 1); }
  std::int64_t vocabulary_size() {
    const JsonValue* key = mapping_.given("vocabulary");
    return of_key(key == nullptr ? std::string("vocab_size") : key->text, 1);
  }
  bool tied() {
    const JsonValue* tied = mapping_.given("tied");
    return tied != nullptr && whole(*tied, "tied") != 0;
  }
  void at_layer(std::int64_t layer, ExpressionValue word) {
    values_[values_.size() - 2] = ExpressionValue::of(static_cast<double>(layer));
    values_.back() = std::move(word);
  }

  // --- Which way every layer takes

  // The words that a config gives a choice, by layer; none: it is silent, or has an expression.
  struct Choice {
    const JsonValue* object = nullptr;
    std::vector<std::pair<std::string, ExpressionValue>> ways;  // by layer: way, the config's word
    const JsonValue* expression = nullptr;
  };

  const ExpressionValue& named(const std::string& key) const {
    static const ExpressionValue kNone;
    const auto known = std::ranges::find(names_, key);
    return known == names_.end() ? kNone
                                 : values_[static_cast<std::size_t>(known - names_.begin())];
  }

  Choice choice_of(const std::string& name) {
    Choice choice{.object = mapping_.given("choose")->given(name)};
    if (choice.object == nullptr || choice.object->given("from") == nullptr) {
      fault(mapping_, "choose." + name, "is chosen by a layer, and has no `from`");
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

  Choice by_letters(Choice choice, const JsonValue& from, const JsonValue& letters,
                    const std::string& key, std::string pattern) {
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

  Choice by_words(Choice choice, const JsonValue& from, const std::string& key,
                  const ExpressionValue& given) {
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

  std::int64_t layer_count(const std::map<std::string, Choice>& choices) {
    if (const JsonValue* layers = mapping_.given("layers")) return whole(*layers, "layers");
    for (const auto& [name, choice] : choices) {
      if (choice.expression == nullptr) return static_cast<std::int64_t>(choice.ways.size());
    }
    fault(mapping_, "layers", "nothing says how many there are");
    return 0;
  }

  void read_layers() {
    if (!layers_.empty() || !ok()) return;
    std::map<std::string, Choice> choices;
    for (const JsonMember& member : mapping_.given("choose")->members) {
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
          fail("model_type", "choose." + name + ": a list has " +
                                 std::to_string(choice.ways.size()) + " items for " +
                                 std::to_string(count) + " layers");
          return "";
        }
        const auto& [way, word] = choice.ways[static_cast<std::size_t>(i)];
        at_layer(i, word);
        return way;
      }));
    }
  }

  void read_outer() {
    if (!ok()) return;
    at_layer(0, {});
    const JsonValue* given = mapping_.given("stream")->given("streams");
    streams_ = given == nullptr ? 1 : whole(*given, "stream.streams");
    if (ok() && streams_ < 1) fail(given->text, "0 is below 1");
    at_embedding_ = outer_kinds("at_embedding");
    at_head_ = outer_kinds("at_head");
  }
  std::vector<Chosen> outer_kinds(const std::string& place) {
    std::vector<Chosen> kinds;
    const JsonValue* list = mapping_.given(place);
    if (list == nullptr) return kinds;
    for (const JsonValue& object : list->items) {
      const JsonValue* given = object.given("times");
      const std::int64_t times = given == nullptr ? 1 : whole(*given, place + ".times");
      if (times > kMostLayers) fail(given->text, "is beyond 4096");
      for (std::int64_t k = 0; k < times && ok(); ++k) {
        std::optional<Chosen> chosen = chosen_of(object, place);
        if (!chosen) break;
        if (given != nullptr) chosen->number = k;
        kinds.push_back(std::move(*chosen));
      }
    }
    return kinds;
  }

  template <class WayOf>
  std::vector<Block> blocks_of(WayOf way_of) {
    std::vector<Block> blocks;
    for (const JsonValue& parts : mapping_.given("layer")->items) {
      Block block;
      for (const JsonValue& part : parts.items) {
        const std::size_t colon = part.text.find(':');
        const std::string what = part.text.substr(0, colon);
        std::string name = colon == std::string::npos ? "" : part.text.substr(colon + 1);
        if (const std::size_t at = name.find('@'); at != std::string::npos) {  // NAME@CHOICE.WAY
          const std::size_t dot = name.find('.', at);
          const std::string choice = name.substr(at + 1, dot - at - 1);
          if (dot == std::string::npos || mapping_.given("choose")->given(choice) == nullptr) {
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
        } else if (what == "choose" && mapping_.given("choose")->given(name) != nullptr) {
          const std::string way = way_of(name);
          if (!ok()) return blocks;
          if (std::optional<Chosen> chosen = chosen_of(name, way)) {
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

  // None: the way is no kind, and its block is not there.
  std::optional<Chosen> chosen_of(const std::string& name, const std::string& way) {
    const std::string place = "choose." + name + "." + way;
    const JsonValue* object = mapping_.given("choose")->given(name)->given(way);
    if (object == nullptr) {
      fault(mapping_, "choose." + name, json_excerpt(way) + " is no way of it");
      return {};
    }
    return chosen_of(*object, place);
  }

  std::optional<Chosen> chosen_of(const JsonValue& object, const std::string& place) {
    const JsonValue *named_kind = object.given("kind"), *when = object.given("when");
    if (named_kind == nullptr || (when != nullptr && whole(*when, place + ".when") == 0)) return {};
    const Result<const LayerKind*> kind = layer_kind(named_kind->text);
    if (!kind) {
      fault(object, place + ".kind", kind.error().message);
      return {};
    }
    Chosen chosen;
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

  void bind(Chosen& chosen, const JsonValue* given, const std::string& place) {
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
      const bool fits = value.kind == ExpressionValue::Kind::Number && value.number >= 0 &&
                        value.number <= kMostOfAny && value.number == std::floor(value.number);
      if (!fits) {
        const JsonValue* expression = bindings.given(symbol);
        const auto read =
            expression == nullptr ? expressions_.end() : expressions_.find(expression->text);
        fail("model_type",
             at + " is " + shown(value) + ", no whole number from 0 to 2^30" +
                 (read == expressions_.end() ? std::string() : with_values(read->second)));
        return;
      }
      chosen.bound.values[i] = static_cast<std::int64_t>(value.number);
    }
  }

  // --- The transformer

  struct Facts {
    Transformer one;  // one layer as a model
    std::int64_t window = 0;
    bool rotates = true;
    std::vector<BoundKind> mixers;
    std::vector<ExtraVector> extra;
  };

  Transformer common(const std::string& name) {
    Transformer base;
    base.name = name;
    base.model_type = text_of("model_type");
    base.layers = 1;
    base.max_positions = of_key("max_position_embeddings", 0);
    base.hidden = hidden();
    base.vocabulary = vocabulary_size();
    base.tied_embedding = tied();
    base.positions = PositionKind::Rope;
    base.mlp = MlpKind::Gated;
    base.activation = ActivationKind::Silu;
    base.qkv_bias = base.projection_bias = base.mlp_bias = false;
    const JsonValue& stream = *mapping_.given("stream");
    const JsonValue* norm = stream.given("norm");
    base.norm = norm != nullptr && norm->text == "layer" ? NormKind::LayerNorm : NormKind::RmsNorm;
    const JsonValue* bias = stream.given("norm_bias");
    base.norm_bias = bias != nullptr && bias->boolean;
    const JsonValue* from_one = stream.given("norm_from_one");
    base.norm_from_one = from_one != nullptr && from_one->boolean;
    if (const JsonValue* cap = mapping_.given("softcap")) {
      const ExpressionValue value = evaluate(*cap, "softcap");
      if (value.kind == ExpressionValue::Kind::Number) base.final_softcap = value.number;
    }
    if (const JsonValue* rotary = mapping_.given("rotary")) {
      const ExpressionValue share = evaluate(*rotary, "rotary");
      if (share.kind == ExpressionValue::Kind::Number) base.rotary.share = share.number;
      if (!(base.rotary.share >= 0 && base.rotary.share <= 1)) {
        fail(rotary->text, "a share of a head is from 0 to 1");
        base.rotary.share = 1;
      }
    }
    const auto rate = [&](std::initializer_list<std::string_view> keys) {
      for (const std::string_view key : keys) {
        const JsonValue* given = object_.given(key);
        if (given != nullptr && given->is_number()) return given->number;
      }
      return -1.0;
    };
    base.dropouts = {.residual = rate({"hidden_dropout", "resid_pdrop"}),
                     .attention = rate({"attention_dropout"}),
                     .embedding = rate({"embd_pdrop"})};
    return base;
  }

  std::int64_t symbol(const Chosen& chosen, std::string_view name) {
    const std::int32_t at = chosen.bound.kind->symbol(name);
    return at < 0 ? 0 : chosen.bound.values[static_cast<std::size_t>(at)];
  }

  Facts facts_of(const Transformer& base, const std::vector<Block>& blocks) {
    Facts facts{.one = base};
    Transformer& one = facts.one;
    one.has_attention = one.has_mlp = false;
    bool before = false, after = false, dense = false;
    for (const Block& block : blocks) {
      before |= !block.norms.empty();
      after |= !block.norms_after.empty();
      bool mixes = false, feeds = false;
      for (const Chosen& chosen : block.chosen) {
        switch (chosen.bound.kind->built_in) {
          case BuiltIn::No:
            facts.mixers.push_back(chosen.bound);
            mixes = true;
            break;
          case BuiltIn::Attention:
          case BuiltIn::Latent:
            attention(chosen, facts);
            mixes = true;
            break;
          case BuiltIn::Mlp:
            mlp(chosen, facts);
            feeds = dense = true;
            break;
          case BuiltIn::Experts:
            experts(chosen, facts);
            feeds = true;
            break;
        }
      }
      if (mixes && feeds) one.one_norm = one.parallel_residual = true;
    }
    one.experts.beside_mlp = dense && one.experts.count > 0;
    one.norm_placement = before && after ? NormPlacement::Around
                         : after         ? NormPlacement::After
                                         : NormPlacement::Before;
    if (one.heads == 0) one.heads = one.kv_heads = one.head_dim = 1;  // a layer without attention
    return facts;
  }

  void attention(const Chosen& chosen, Facts& facts) {
    Transformer& one = facts.one;
    one.has_attention = true;
    one.heads = symbol(chosen, "a");
    one.qkv_bias = symbol(chosen, "bias") != 0;
    one.projection_bias = symbol(chosen, "out_bias") != 0;
    facts.window = symbol(chosen, "window");
    facts.rotates = symbol(chosen, "rotates") != 0;
    if (chosen.bound.kind->built_in == BuiltIn::Latent) {
      one.latent = {.q_lora_rank = symbol(chosen, "q_rank"),
                    .kv_lora_rank = symbol(chosen, "kv_rank"),
                    .qk_nope_head_dim = symbol(chosen, "nope"),
                    .qk_rope_head_dim = symbol(chosen, "rope"),
                    .v_head_dim = symbol(chosen, "V")};
      one.kv_heads = one.heads;
      one.head_dim = one.latent.qk_nope_head_dim + one.latent.qk_rope_head_dim;
      return;
    }
    one.kv_heads = symbol(chosen, "kv");
    one.head_dim = symbol(chosen, "D");
    const std::int64_t values = symbol(chosen, "V");
    one.value_head_dim = values == one.head_dim ? 0 : values;
    one.attention_gate = symbol(chosen, "gate") != 0;
    one.query_key_norm = symbol(chosen, "head_norms") != 0;
    one.query_key_norm_whole = symbol(chosen, "whole_norms") != 0;
    one.attention_sinks = symbol(chosen, "sinks") != 0;
    one.keys_are_values = symbol(chosen, "k_is_v") != 0;
    if (one.heads % std::max<std::int64_t>(one.kv_heads, 1) != 0) {
      fail("model_type", chosen.module + ": " + std::to_string(one.kv_heads) +
                             " key heads do not divide " + std::to_string(one.heads) + " heads");
    }
  }

  void mlp(const Chosen& chosen, Facts& facts) {
    Transformer& one = facts.one;
    one.has_mlp = true;
    one.ffn_hidden = symbol(chosen, "f");
    one.mlp = symbol(chosen, "gated") != 0 ? MlpKind::Gated : MlpKind::Plain;
    one.mlp_bias = symbol(chosen, "bias") != 0;
    if (const std::int64_t numbers = symbol(chosen, "activation_numbers"); numbers > 0) {
      facts.extra.push_back({.name = "activation.numbers", .elements = numbers});
    }
  }

  void experts(const Chosen& chosen, Facts& facts) {
    Transformer& one = facts.one;
    one.has_mlp = true;
    one.mlp = symbol(chosen, "gated") != 0 ? MlpKind::Gated : MlpKind::Plain;
    Experts& experts = one.experts;
    experts = {.count = symbol(chosen, "E"),
               .per_token = symbol(chosen, "top"),
               .ffn_hidden = symbol(chosen, "f"),
               .shared_ffn_hidden = symbol(chosen, "shared"),
               .shared_gate = symbol(chosen, "shared_gate") != 0,
               .bias = symbol(chosen, "bias") != 0,
               .groups = symbol(chosen, "groups"),
               .kept_groups = symbol(chosen, "kept_groups"),
               .latent = symbol(chosen, "latent") != 0 ? symbol(chosen, "l") : 0};
    if (const std::int64_t rows = symbol(chosen, "correction"); rows > 0) {
      facts.extra.push_back(
          {.name = "router.correction", .elements = experts.count, .of_experts = true});
    }
    const std::int64_t groups = std::max<std::int64_t>(experts.groups, 1);
    if (experts.per_token < 1 || experts.per_token > experts.count || experts.count % groups != 0 ||
        experts.kept_groups > groups ||
        experts.per_token > experts.kept_groups * (experts.count / groups)) {
      fail("model_type", chosen.module + ": " + std::to_string(experts.per_token) +
                             " experts a token of " + std::to_string(experts.count) + ", in " +
                             std::to_string(experts.kept_groups) + " of " +
                             std::to_string(experts.groups) + " groups, cannot be");
    }
  }

  static Mix mix_of(LayerMix mix) { return {std::make_shared<const LayerMix>(std::move(mix))}; }

  // What a layer is alone, with its own kinds.
  Transformer whole_of(const Facts& facts) const {
    Transformer one = facts.one;
    if (!facts.mixers.empty() || !facts.extra.empty() || streams_ > 1) {
      one.mix = mix_of({.mixers = facts.mixers, .extra = facts.extra, .streams = streams_});
    }
    return one;
  }

  // One model of all layers: where they differ by experts, windows and rotation alone, as the
  // dialects have it, else as variants.
  Transformer joined(Transformer base, const std::vector<Facts>& facts) {
    Transformer model = std::move(base);
    const auto take_first = [&](auto has, auto take) {
      const auto first = std::ranges::find_if(facts, has);
      if (first != facts.end()) take(first->one);
    };
    model = facts.front().one;
    take_first([](const Facts& f) { return f.one.has_attention; },
               [&](const Transformer& of) {
                 const Transformer front = model;
                 model = of;
                 model.experts = front.experts;
               });
    take_first([](const Facts& f) { return f.one.ffn_hidden > 0; },
               [&](const Transformer& of) {
                 model.ffn_hidden = of.ffn_hidden;
                 model.mlp_bias = of.mlp_bias;
               });
    take_first([](const Facts& f) { return f.one.experts.count > 0; },
               [&](const Transformer& of) { model.experts = of.experts; });
    model.has_attention =
        std::ranges::any_of(facts, [](const Facts& f) { return f.one.has_attention; });
    model.has_mlp = std::ranges::any_of(facts, [](const Facts& f) { return f.one.has_mlp; });
    model.layers = static_cast<std::int64_t>(facts.size());
    std::vector<ExtraVector> extra;
    for (const Facts& of : facts) {
      for (const ExtraVector& one : of.extra) {
        if (std::ranges::find(extra, one) == extra.end()) extra.push_back(one);
      }
    }
    lists(model, facts);
    if (!ok()) return model;
    if (std::ranges::all_of(facts, [&](const Facts& of) { return is_plain(model, of); })) {
      if (!extra.empty() || beyond_layers()) model.mix = mix_of(with_outer({.extra = extra}));
    } else {
      model.mix = mix_of(with_outer(variants_of(facts)));
    }
    return model;
  }

  // What models say by layer: experts, windows, rotation.
  void lists(Transformer& model, const std::vector<Facts>& facts) {
    const auto some_not = [&](auto has) {
      return std::ranges::any_of(facts, [&](const Facts& f) { return !has(f); });
    };
    const auto list = [&](auto has) {
      std::vector<bool> layers;
      for (const Facts& of : facts) layers.push_back(has(of));
      return layers;
    };
    const auto has_experts = [](const Facts& f) { return f.one.experts.count > 0; };
    const auto rotates = [](const Facts& f) { return f.rotates; };
    const auto windowed = [](const Facts& f) { return f.window > 0; };
    model.experts.layers.clear();
    if (model.experts.count > 0 && some_not(has_experts)) model.experts.layers = list(has_experts);
    if (some_not(rotates)) model.rotating_layers = list(rotates);
    for (const Facts& of : facts) {
      if (of.window == 0) continue;
      if (model.sliding_window != 0 && model.sliding_window != of.window) {
        return fail("model_type",
                    "layers have windows of " + std::to_string(model.sliding_window) + " and " +
                        std::to_string(of.window) + ": one alone is priced",
                    true);
      }
      model.sliding_window = of.window;
    }
    if (model.sliding_window > 0 && some_not(windowed)) model.windowed_layers = list(windowed);
  }

  // Whether the layer is what a model that is not mixed has there.
  static bool is_plain(const Transformer& model, const Facts& facts) {
    if (!facts.mixers.empty()) return false;
    Transformer like = model;
    like.layers = 1;
    like.experts.layers.clear();
    like.rotating_layers.clear();
    like.windowed_layers.clear();
    like.sliding_window = 0;
    const bool experts = facts.one.experts.count > 0;
    if (!experts) like.experts = {};
    if (experts && !facts.one.experts.beside_mlp) {
      like.ffn_hidden = facts.one.ffn_hidden;
      like.mlp_bias = facts.one.mlp_bias;
    }
    return like == facts.one;
  }

  bool beyond_layers() const { return streams_ > 1 || !at_embedding_.empty() || !at_head_.empty(); }
  // What stands outside of layers, and how many streams go through them.
  LayerMix with_outer(LayerMix mix) const {
    mix.streams = streams_;
    for (const Chosen& chosen : at_embedding_) mix.at_embedding.push_back(chosen.bound);
    for (const Chosen& chosen : at_head_) mix.at_head.push_back(chosen.bound);
    return mix;
  }

  LayerMix variants_of(const std::vector<Facts>& facts) const {
    LayerMix mix;
    for (const Facts& of : facts) mix.of_layer.push_back(place_of(mix.variants, whole_of(of)));
    return mix;
  }
  static std::int16_t place_of(std::vector<Transformer>& variants, Transformer&& one) {
    const auto same = std::ranges::find(variants, one);
    if (same != variants.end()) return static_cast<std::int16_t>(same - variants.begin());
    variants.push_back(std::move(one));
    return static_cast<std::int16_t>(variants.size() - 1);
  }

  void predictions(Transformer& model) {
    const JsonValue* prediction = mapping_.given("prediction");
    const JsonValue* depths = prediction == nullptr ? nullptr : prediction->given("depths");
    if (depths == nullptr) return;
    model.prediction_layers = whole(*depths, "prediction.depths");
    const JsonValue* ways = prediction->given("ways");
    if (model.prediction_layers == 0 || ways == nullptr || variants(model) == 0) return;
    Facts facts{.one = common(model.name)};
    std::vector<Block> blocks;
    for (const JsonMember& member : ways->members) {
      at_layer(model.layers, ExpressionValue::of_word(member.value.text));
      for (const JsonValue& way : member.value.items) {
        Block block;
        block.norms.emplace_back("norm");
        if (std::optional<Chosen> chosen = chosen_of(member.key, way.text)) {
          block.chosen.push_back(std::move(*chosen));
        }
        if (!ok()) return;
        blocks.push_back(std::move(block));
      }
    }
    LayerMix mix = *model.mix.layers;
    mix.prediction = place_of(mix.variants, whole_of(facts_of(common(model.name), blocks)));
    model.mix = mix_of(std::move(mix));
  }

  // --- Tensors

  void add(std::vector<FileTensor>& all, const std::string& name, std::vector<std::int64_t> shape,
           std::optional<std::int64_t> layer) {
    const auto same = std::ranges::find_if(
        all, [&](const FileTensor& other) { return other.name == name && other.shape == shape; });
    if (same != all.end()) {
      if (layer) same->layers.push_back(*layer);
      return;
    }
    FileTensor tensor{.name = name, .shape = std::move(shape), .layers = {}};
    if (layer) tensor.layers.push_back(*layer);
    all.push_back(std::move(tensor));
  }

  void add_norm(std::vector<FileTensor>& all, const std::string& name,
                std::optional<std::int64_t> layer) {
    add(all, name + ".weight", {hidden()}, layer);
    const JsonValue* bias = mapping_.given("stream")->given("norm_bias");
    if (bias != nullptr && bias->boolean) add(all, name + ".bias", {hidden()}, layer);
  }

  void add_outer(std::vector<FileTensor>& all, const char* key, std::vector<std::int64_t> shape,
                 bool norm) {
    const std::string name = text_of(key);
    if (norm) return add_norm(all, name, {});
    add(all, name + ".weight", std::move(shape), {});
  }

  void add_kind(std::vector<FileTensor>& all, const std::string& base, const Chosen& chosen,
                std::optional<std::int64_t> layer) {
    const Result<std::vector<NamedShape>> shapes = tensor_shapes(chosen.bound, chosen.words);
    if (!shapes) return fail("model_type", shapes.error().message);
    const std::string module = chosen.module.empty() ? base : base + chosen.module + ".";
    for (const NamedShape& shape : shapes.value())
      add(all, module + shape.name, shape.shape, layer);
  }

  void add_layer(std::vector<FileTensor>& all, std::int64_t layer) {
    const std::string base = text_of("layer_name") + ".";
    for (const Block& block : layers_[static_cast<std::size_t>(layer)]) {
      for (const std::string& norm : block.norms) add_norm(all, base + norm, layer);
      for (const Chosen& chosen : block.chosen) add_kind(all, base, chosen, layer);
      for (const std::string& norm : block.norms_after) add_norm(all, base + norm, layer);
    }
  }

  const JsonValue& mapping_;
  const std::string& path_;
  const JsonValue& object_;
  std::string key_;
  JsonReport& report_;
  std::vector<std::string> names_;
  std::vector<ExpressionValue> values_;  // by name; the last two: i, word
  std::map<std::string, Expression> expressions_;
  std::vector<std::vector<Block>> layers_;
  std::int64_t streams_ = 1;
  std::vector<Chosen> at_embedding_, at_head_;
};

// Typing mistakes among the keys, and what is said of those that the mapping does not know.
void check_keys_of(const Mapping& mapping, const JsonValue& object, const std::string& key,
                   JsonReport& report) {
  constexpr std::int32_t kTypingMistake = 2;  // edits
  const std::vector<std::string_view> known = keys_of(mapping);
  std::vector<std::string_view> absent;
  for (const std::string_view name : known) {
    if (object.find(name) == nullptr) absent.push_back(name);
  }
  for (const JsonMember& member : object.members) {
    if (std::ranges::find(known, member.key) != known.end()) continue;
    if (const ConfigKey* row = find_config_key(mapping.model_type, member.key)) {
      if (row->use == KeyUse::Refused && !is_one_of(&member.value, row->runs)) {
        report.fail(member.line, join_key(key, member.key),
                    shown_value(member.value) + " is refused: " + std::string(row->about), true);
      }
      continue;
    }
    const std::string_view meant = nearest(member.key, absent);
    if (!meant.empty() && edit_distance(member.key, meant) <= kTypingMistake) {
      report.fail(member.line, join_key(key, member.key),
                  "unknown key, the nearest known one is " + std::string(meant));
    }
  }
}

}  // namespace

MappedModel read_mapped(const Mapping& mapping, const JsonValue& object, const std::string& name,
                        const std::string& key, JsonReport& report) {
  check_keys_of(mapping, object, key, report);
  if (!report.ok()) return {};
  MappedModel read = MappedReader(mapping, object, key, report).model(name);
  if (!report.ok()) return read;
  const std::vector<std::string_view> known = keys_of(mapping);
  JsonValue strangers{.kind = JsonKind::Object, .line = object.line};
  for (const JsonMember& member : object.members) {
    if (std::ranges::find(known, member.key) == known.end()) strangers.members.push_back(member);
  }
  read.use = use_of(strangers, report.path(), key, read.model);
  const JsonMember* type = object.find("model_type");
  const std::string beyond = beyond_plain_layers(read.model);
  read.use.unperformed.insert(
      read.use.unperformed.begin(),
      {.file = report.path(),
       .line = type == nullptr ? object.line : type->line,
       .key = join_key(key, "model_type"),
       .value = json_quoted(mapping.model_type),
       .priced = beyond.empty()
                     ? "its attention, MLP and experts are priced"
                     : "it has " + beyond + "; run performs attention, MLP and experts"});
  return read;
}

Result<std::vector<FileTensor>> mapped_tensors(const Mapping& mapping, const JsonValue& object,
                                               const std::string& path) {
  JsonReport report(path);
  std::vector<FileTensor> tensors = MappedReader(mapping, object, "", report).tensors();
  if (!report.ok()) return report.error();
  return tensors;
}

}  // namespace rehearse
