// SPDX-License-Identifier: Apache-2.0
// The keys of a scenario, and of `train`.
#include <array>

#include "schedules/scenario/keys/key_specs.h"
#include "schedules/scenario/keys/scenario_keys.h"
#include "schedules/scenario/variation.h"

namespace rehearse {
namespace keys {
namespace {

constexpr std::array<std::string_view, 3> kScenarioLater{"adapter", "trainable", "freeze"};

constexpr std::array<std::string_view, 3> kDecays{"constant", "linear", "cosine"};
constexpr std::array<std::string_view, 2> kBalances{"aux_loss", "seq_aux_loss"};
constexpr std::array<std::string_view, 1> kLossScales{"dynamic"};

constexpr KeySpec share(std::string_view name, double below) {
  return {.name = name, .types = kNumber, .min = 0, .max = below};
}
constexpr KeySpec steps(std::string_view name, double min) {
  return {.name = name, .types = kInteger, .min = min, .max = 1e12};
}
constexpr std::array kTrainKeys{
    KeySpec{.name = "data",
            .types = kString,
            .about = "file of bytes or .bin tokens, or \"synthetic\""},
    steps("steps", 1),
    KeySpec{.name = "learning_rate", .types = kNumber, .min = 0, .max = 1e3},
    steps("seed", 0),
    share("beta1", 1),
    share("beta2", 1),
    KeySpec{.name = "epsilon", .types = kNumber, .min = 0, .max = 1, .above_min = true},
    share("weight_decay", 1e3),
    KeySpec{.name = "weight_decay_matrices_only", .types = kBool},
    share("clip_norm", 1e12),
    steps("warmup_steps", 0),
    KeySpec{.name = "lr_decay", .types = kString, .choices = kDecays},
    share("min_learning_rate", 1e3),
    steps("checkpoint_every", 0),
    share("router_auxiliary_loss", 1e3),
    KeySpec{
        .name = "router_load_balancing",
        .types = kString,
        .choices = kBalances,
        .about = "what the auxiliary loss balances: a micro-batch's tokens, or each sequence's"},
    share("router_z_loss", 1e3),
    KeySpec{.name = "router_bias_rate",
            .types = kNumber,
            .min = 0,
            .max = 1e3,
            .about = "by how much experts' correction biases move in a step"},
    KeySpec{.name = "loss_scale",
            .types = kNumber | kString,
            .min = 0,
            .max = 0x1p64,
            .above_min = true,
            .choices = kLossScales,
            .about = "by what a loss in fp16 is multiplied"},
};
constexpr KeyTable kTrain{.title = "train", .keys = kTrainKeys};

constexpr std::array kScenarioKeys{
    KeySpec{.name = "$schema", .types = kString, .about = "for editors"},
    KeySpec{.name = "name", .types = kString, .about = "for people"},
    KeySpec{.name = "model",
            .types = kString | kObject,
            .about = "a Hugging Face config.json: path, or the object itself"},
    KeySpec{.name = "cluster",
            .types = kString | kObject,
            .about = "a cluster file: path, id of a shipped one, or the object itself"},
    KeySpec{.name = "gpus",
            .types = kInteger,
            .min = 1,
            .max = kMaxRanks,
            .about = "ranks; left out: the product of the sizes, else one node"},
    KeySpec{.name = "domain_gpus",
            .types = kInteger,
            .min = 1,
            .max = kMaxRanks,
            .about = "GPUs used of each NVLink domain, that is of each node; left out: all"},
    KeySpec{.name = "variation",
            .types = kObject,
            .members = &kVariation,
            .about = "GPUs that differ: a spread of speeds, slow ones"},
    KeySpec{.name = "plan", .types = kObject, .members = &kPlan},
    KeySpec{.name = "train", .types = kObject, .members = &kTrain},
};
constexpr KeyTable kScenario{.title = "Scenario: a model, a cluster, and how one runs on the other",
                             .keys = kScenarioKeys,
                             .later = kScenarioLater};

}  // namespace
}  // namespace keys

const KeyTable& scenario_key_table() {
  return keys::kScenario;
}

}  // namespace rehearse
