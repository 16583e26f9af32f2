// SPDX-License-Identifier: Apache-2.0
#include "schedules/scenario/reader/train_reader.h"

#include <optional>

#include "schedules/base/files.h"

namespace rehearse {
namespace {

void check_router_losses(const JsonValue& train, const Transformer* model, JsonReport& report) {
  for (const char* key : {"router_auxiliary_loss", "router_z_loss"}) {
    const JsonValue* given = train.given(key);
    if (given == nullptr || given->number == 0) continue;
    if (model != nullptr && model->experts.count == 0) {
      return report.fail(given->line, std::string("train.") + key, "the model has no experts");
    }
  }
  const JsonValue* loss = train.given("router_auxiliary_loss");
  const JsonValue* kind = train.given("router_load_balancing");
  if (kind == nullptr || (loss != nullptr && loss->number > 0)) return;
  report.fail(kind->line, "train.router_load_balancing",
              "nothing is balanced: train.router_auxiliary_loss is 0");
}

void check_router_bias(const JsonValue& train, const Transformer* model, JsonReport& report) {
  const JsonValue* given = train.given("router_bias_rate");
  if (given == nullptr || given->number == 0 || model == nullptr) return;
  if (model->experts.correction_bias) return;
  if (model->experts.count == 0) {
    return report.fail(given->line, "train.router_bias_rate", "the model has no experts");
  }
  report.fail(
      given->line, "train.router_bias_rate",
      "nothing is moved: routers of " + model->model_type + " choose by their scores alone");
}

}  // namespace

TrainOptions read_train(const JsonValue& train, const Transformer* model, Optimizer optimizer,
                        JsonReport& report) {
  TrainOptions to{.beta1 = row_of(optimizer).beta1, .beta2 = row_of(optimizer).beta2};
  const auto integer = [&](std::string_view key, std::int64_t& value) {
    if (const JsonValue* found = train.given(key)) value = found->integer;
  };
  const auto number = [&](std::string_view key, double& value) {
    if (const JsonValue* found = train.given(key)) value = found->number;
  };
  integer("steps", to.steps);
  integer("seed", to.seed);
  integer("warmup_steps", to.warmup_steps);
  integer("checkpoint_every", to.checkpoint_every);
  number("learning_rate", to.learning_rate);
  number("min_learning_rate", to.min_learning_rate);
  number("beta1", to.beta1);
  number("beta2", to.beta2);
  number("epsilon", to.epsilon);
  number("weight_decay", to.weight_decay);
  number("clip_norm", to.clip_norm);
  number("router_auxiliary_loss", to.router_auxiliary_loss);
  number("router_z_loss", to.router_z_loss);
  number("router_bias_rate", to.router_bias_rate);
  number("loss_scale", to.loss_scale);  // "dynamic" has none
  check_router_losses(train, model, report);
  check_router_bias(train, model, report);
  if (const JsonValue* kind = train.given("router_load_balancing")) {
    to.router_load_balancing = kind->text;
  }
  if (const JsonValue* decay = train.given("lr_decay")) to.lr_decay = decay->text;
  if (const JsonValue* only = train.given("weight_decay_matrices_only")) {
    to.weight_decay_matrices_only = only->boolean;
  }
  const JsonValue* data = train.given("data");
  if (data == nullptr) return to;
  // A prediction needs no data: that the file is missing is for `run` to say.
  const auto found =
      data->text == "synthetic" ? std::nullopt : find_file(data->text, report.path(), "");
  to.data = found ? *found : data->text;
  return to;
}

RouterBalance router_balance(const TrainOptions& train) {
  if (train.router_auxiliary_loss == 0) return RouterBalance::None;
  return train.router_load_balancing == "seq_aux_loss" ? RouterBalance::Sequence
                                                       : RouterBalance::MicroBatch;
}

}  // namespace rehearse
