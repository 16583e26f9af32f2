// SPDX-License-Identifier: Apache-2.0
// A config read by its mapping: the transformer that its layers make.
#include <algorithm>
#include <optional>

#include "schedules/model/config/near_miss.h"
#include "schedules/model/kinds/mapped_layers.h"

namespace rehearse {
namespace {

class ModelReader : public MappedLayers {
 public:
  using MappedLayers::MappedLayers;

  MappedModel model(const std::string& name) {
    MappedModel read;
    read_layers();
    read_outer();
    if (!ok()) return read;
    Transformer base = common(name);
    std::vector<Facts> facts;
    for (const std::vector<LayerBlock>& layer : layers_) facts.push_back(facts_of(base, layer));
    if (!ok()) return read;
    read.model = joined(std::move(base), facts);
    if (ok()) predictions(read.model);
    return read;
  }

 private:
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
    const JsonValue& stream = *mapping().given("stream");
    const JsonValue* norm = stream.given("norm");
    base.norm = norm != nullptr && norm->text == "layer" ? NormKind::LayerNorm : NormKind::RmsNorm;
    const JsonValue* bias = stream.given("norm_bias");
    base.norm_bias = bias != nullptr && bias->boolean;
    const JsonValue* from_one = stream.given("norm_from_one");
    base.norm_from_one = from_one != nullptr && from_one->boolean;
    if (const JsonValue* cap = mapping().given("softcap")) {
      const ExpressionValue value = evaluate(*cap, "softcap");
      if (value.kind == ExpressionValue::Kind::Number) base.final_softcap = value.number;
    }
    if (const JsonValue* rotary = mapping().given("rotary")) {
      const ExpressionValue share = evaluate(*rotary, "rotary");
      if (share.kind == ExpressionValue::Kind::Number) base.rotary.share = share.number;
      if (!(base.rotary.share >= 0 && base.rotary.share <= 1)) {
        fail(rotary->text, "a share of a head is from 0 to 1");
        base.rotary.share = 1;
      }
    }
    const auto rate = [&](std::initializer_list<std::string_view> keys) {
      for (const std::string_view key : keys) {
        const JsonValue* given = object().given(key);
        if (given != nullptr && given->is_number()) return given->number;
      }
      return -1.0;
    };
    base.dropouts = {.residual = rate({"hidden_dropout", "resid_pdrop"}),
                     .attention = rate({"attention_dropout"}),
                     .embedding = rate({"embd_pdrop"})};
    return base;
  }

  std::int64_t symbol(const ChosenKind& chosen, std::string_view name) {
    const std::int32_t at = chosen.bound.kind->symbol(name);
    return at < 0 ? 0 : chosen.bound.values[static_cast<std::size_t>(at)];
  }

  Facts facts_of(const Transformer& base, const std::vector<LayerBlock>& blocks) {
    Facts facts{.one = base};
    Transformer& one = facts.one;
    one.has_attention = one.has_mlp = false;
    bool before = false, after = false, dense = false;
    for (const LayerBlock& block : blocks) {
      before |= !block.norms.empty();
      after |= !block.norms_after.empty();
      bool mixes = false, feeds = false;
      for (const ChosenKind& chosen : block.chosen) {
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

  void attention(const ChosenKind& chosen, Facts& facts) {
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

  void mlp(const ChosenKind& chosen, Facts& facts) {
    Transformer& one = facts.one;
    one.has_mlp = true;
    one.ffn_hidden = symbol(chosen, "f");
    one.mlp = symbol(chosen, "gated") != 0 ? MlpKind::Gated : MlpKind::Plain;
    one.mlp_bias = symbol(chosen, "bias") != 0;
    if (const std::int64_t numbers = symbol(chosen, "activation_numbers"); numbers > 0) {
      facts.extra.push_back({.name = "activation.numbers", .elements = numbers});
    }
  }

  void experts(const ChosenKind& chosen, Facts& facts) {
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
    for (const ChosenKind& chosen : at_embedding_) mix.at_embedding.push_back(chosen.bound);
    for (const ChosenKind& chosen : at_head_) mix.at_head.push_back(chosen.bound);
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
    const JsonValue* prediction = mapping().given("prediction");
    const JsonValue* depths = prediction == nullptr ? nullptr : prediction->given("depths");
    if (depths == nullptr) return;
    model.prediction_layers = whole(*depths, "prediction.depths");
    const JsonValue* ways = prediction->given("ways");
    if (model.prediction_layers == 0 || ways == nullptr || variants(model) == 0) return;
    Facts facts{.one = common(model.name)};
    std::vector<LayerBlock> blocks;
    for (const JsonMember& member : ways->members) {
      at_layer(model.layers, ExpressionValue::of_word(member.value.text));
      for (const JsonValue& way : member.value.items) {
        LayerBlock block;
        block.norms.emplace_back("norm");
        if (std::optional<ChosenKind> chosen = chosen_of(member.key, way.text)) {
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
  MappedModel read = ModelReader(mapping, object, key, report).model(name);
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

}  // namespace rehearse
