// SPDX-License-Identifier: Apache-2.0
// Batches and sequences, and what divides them.
#include "schedules/scenario/plan_size.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

constexpr double kMaxScores = 0x1p58;  // attention probabilities of a micro-batch

}  // namespace

void read_batches(const GivenKeys& keys, Plan& plan) {
  const std::int64_t d = plan.data_parallel;
  const JsonValue* micro_batch = keys.given(&Plan::micro_batch);
  if (micro_batch != nullptr && micro_batch->is(JsonKind::String) && micro_batch->text != "auto") {
    return keys.fail(&Plan::micro_batch,
                     "must be an integer or \"auto\", not " + json_excerpt(micro_batch->text));
  }
  plan.micro_batch_auto = micro_batch == nullptr || micro_batch->is(JsonKind::String);
  const std::int32_t samples =
      plan.micro_batch_auto ? 1 : static_cast<std::int32_t>(micro_batch->integer);
  plan.micro_batch = samples;
  plan.global_batch = keys.integer(
      &Plan::global_batch, d * samples * (plan.micro_batch_auto ? plan.pipeline_parallel : 1));
  if (plan.global_batch % (d * samples) != 0) {
    return keys.fail(
        &Plan::global_batch,
        number(plan.global_batch) + " is not a multiple of " +
            (plan.micro_batch_auto ? "data_parallel = " + number(d)
                                   : "data_parallel x micro_batch = " + product({d, samples}) +
                                         " = " + number(d * samples)));
  }
  if (plan.chimera_scaling == ChimeraScaling::BackwardHalving) {
    if (plan.micro_batch_auto || samples % 2 != 0) {
      return keys.fail(
          &Plan::chimera_scaling,
          "backward_halving halves a micro-batch: " + std::string(key_of(&Plan::micro_batch)) +
              (plan.micro_batch_auto ? " must be given (a search asks for forward_doubling)"
                                     : " " + number(samples) + " is odd"));
    }
    plan.micro_batch /= 2;
  }
  const std::int64_t positions =
      keys.context.model == nullptr ? 0 : keys.context.model->max_positions;
  plan.sequence_length = keys.integer(&Plan::sequence_length, positions);
  const std::int64_t s = plan.sequence_length, c = plan.context_parallel, t = plan.tensor_parallel;
  if (keys.context.model != nullptr && keys.context.model->positions == PositionKind::Learned &&
      s > positions) {
    return keys.fail(&Plan::sequence_length, number(s) + " is more than the model's " +
                                                 number(positions) +
                                                 " learned positions (max_position_embeddings)");
  }
  if (c > 1 && s % (2 * c) != 0) {
    return keys.fail(&Plan::context_parallel,
                     "2 x " + number(c) + " does not divide sequence_length " + number(s));
  }
  if (plan.sequence_parallel && s % (t * c) != 0) {
    return keys.fail(&Plan::sequence_parallel, "tensor x context parallel = " + product({t, c}) +
                                                   " does not divide sequence_length " + number(s));
  }
  const std::int64_t slices = plan.sequence_slices;
  if (s > 0 && s % slices != 0) {
    return keys.fail(&Plan::sequence_slices,
                     number(slices) + " does not divide sequence_length " + number(s));
  }
  if (c > 1 && slices > 1 && s / slices % (2 * c) != 0) {
    return keys.fail(&Plan::context_parallel, "2 x " + number(c) + " does not divide a slice of " +
                                                  number(s / slices) + " tokens");
  }
  if (plan.sequence_parallel && slices > 1 && s / slices % (t * c) != 0) {
    return keys.fail(&Plan::sequence_parallel, "tensor x context parallel = " + product({t, c}) +
                                                   " does not divide a slice of " +
                                                   number(s / slices) + " tokens");
  }
  if (keys.context.model != nullptr) {
    const double heads = static_cast<double>(keys.context.model->heads),
                 tokens = static_cast<double>(s);
    if (static_cast<double>(samples) * heads * tokens * tokens > kMaxScores) {
      return keys.fail(&Plan::sequence_length,
                       "micro_batch x heads x sequence_length^2 is beyond 2^58");
    }
  }
  if (plan.micro_batch_auto) return;
  Result<Plan> chosen = choose_micro_batch(plan, plan.micro_batch);
  if (chosen) {
    plan = std::move(chosen).value();
    return;
  }
  const std::string& what = chosen.error().message;  // "KEY: what"
  const std::size_t colon = what.find(": ");
  keys.fail(what.substr(0, colon), what.substr(colon + 2));
}

}  // namespace rehearse
