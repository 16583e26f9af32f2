// SPDX-License-Identifier: Apache-2.0
// The keys of a measured case that is one layer of experts.
#include <array>

#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/keys/scenario_keys.h"

namespace rehearse {
namespace keys {
namespace {

constexpr KeySpec layer_size(std::string_view name, double min, double max,
                             std::string_view about) {
  return {.name = name, .types = kInteger, .min = min, .max = max, .about = about};
}
constexpr KeySpec required_layer_size(std::string_view name, double max, std::string_view about) {
  KeySpec spec = layer_size(name, 1, max, about);
  spec.required = true;
  return spec;
}
constexpr std::array<std::string_view, 2> kScores{"softmax", "sigmoid"};
constexpr std::array<std::string_view, 2> kExpertPrecisions{"bf16", "fp8"};
constexpr std::array<std::string_view, 2> kExpertGradients{"bf16, not accumulated",
                                                           "fp32, accumulated"};
constexpr std::array kMoeLayerKeys{
    required_layer_size("hidden_size", 1 << 18, "h"),
    required_layer_size("moe_intermediate_size", 1 << 18, "width of one expert"),
    required_layer_size("experts", 4096, "of the layer"),
    required_layer_size("experts_per_token", 4096, "k"),
    layer_size("shared_width", 0, 1 << 18, "of all shared experts together; none by default"),
    KeySpec{.name = "score",
            .types = kString,
            .choices = kScores,
            .about = "of the router: of no consequence for time"},
    KeySpec{.name = "groups",
            .types = kArray,
            .min = 1,
            .max = 256,
            .item_types = kInteger,
            .about = "[groups, kept]: a token's experts lie in so many of these groups"},
    KeySpec{.name = "cluster",
            .types = kString,
            .required = true,
            .about = "a cluster file: path or id of a shipped one"},
    layer_size("gpus", 1, kMaxRanks, "expert_parallel by default"),
    required_layer_size("expert_parallel", 4096, "ranks that share the experts"),
    layer_size("expert_tensor_parallel", 1, 1 << 16, "1 alone is built"),
    layer_size("tensor_parallel", 1, 1 << 16, "1 alone is built"),
    required_layer_size("tokens_per_rank", 1 << 22, "that a rank brings"),
    layer_size("micro_batch", 1, kMaxMicrobatch, "with sequence_length: tokens_per_rank once more"),
    layer_size("sequence_length", 1, 1 << 22, "with micro_batch: tokens_per_rank once more"),
    KeySpec{.name = "dispatcher",
            .types = kString,
            .required = true,
            .about = "all_to_all, all_gather, deduplicated, or the source's word for it"},
    KeySpec{.name = "precision",
            .types = kString,
            .choices = kExpertPrecisions,
            .required = true,
            .about = "of the products; fp8: a scale for each block of 128"},
    KeySpec{.name = "routing",
            .types = kString | kNumber,
            .min = 1,
            .max = 256,
            .required = true,
            .about = "balanced, uniform (forced balance by random logits), or the busiest rank's "
                     "rows over the mean"},
    KeySpec{.name = "fused_permute", .types = kBool, .about = "true alone is built"},
    KeySpec{.name = "fused_router", .types = kBool, .about = "true alone is built"},
    KeySpec{.name = "auxiliary_loss", .types = kBool, .about = "of the router, fused with it"},
    KeySpec{.name = "gradient",
            .types = kString,
            .choices = kExpertGradients,
            .about = "of the weights; fp32, accumulated by default"},
};

}  // namespace

constinit const KeyTable kMoeLayer{.title = "moe_layer", .keys = kMoeLayerKeys};

}  // namespace keys

const KeyTable& moe_layer_key_table() {
  return keys::kMoeLayer;
}

}  // namespace rehearse
