// SPDX-License-Identifier: Apache-2.0
// The sizes of the mesh, and how ranks are numbered.
#include <algorithm>
#include <array>

#include "schedules/model/kinds/layer_kind.h"
#include "schedules/model/layer_mix.h"
#include "schedules/scenario/plan_names.h"
#include "schedules/scenario/reader/given_keys.h"
#include "schedules/scenario/reader/plan_steps.h"

namespace rehearse {
namespace {

constexpr std::int64_t kMaxRanks = 1 << 20;

// What t must divide of a model whose layers are alike but for experts.
void read_tensor_parallel(const GivenKeys& keys, const Transformer& model, std::int64_t t) {
  if (model.has_attention) {
    keys.divides(&Plan::tensor_parallel, t, "num_attention_heads", model.heads);
  }
  if (model.has_mlp && model.has_dense_layers())
    keys.divides(&Plan::tensor_parallel, t, "intermediate_size", model.ffn_hidden);
  if (model.experts.count > 0 && model.experts.shared_ffn_hidden > 0) {
    keys.divides(&Plan::tensor_parallel, t, "the width of the shared experts",
                 model.experts.shared_ffn_hidden);
  }
  if (model.has_attention && !model.latent.used() && model.kv_heads % t != 0 &&
      t % model.kv_heads != 0) {
    keys.fail(&Plan::tensor_parallel, number(t) + " neither divides num_key_value_heads " +
                                          number(model.kv_heads) + " nor is a multiple of it");
  }
}

// What the kinds of a model need of the mesh that cuts them.
void meet_needs(const GivenKeys& keys, const Transformer& model, const Plan& plan) {
  for (const BoundKind& mixer : mixers_of(model)) {
    const std::string unmet =
        unmet_need(mixer, {.tensor = plan.tensor_parallel, .context = plan.context_parallel});
    if (unmet.empty()) continue;
    return keys.fail(plan.context_parallel > 1 ? PlanField(&Plan::context_parallel)
                                               : PlanField(&Plan::tensor_parallel),
                     "layers of kind " + mixer.kind->name + " need " + unmet);
  }
}

}  // namespace

// What t must divide: a wrong t is said before the product of sizes that follows from it.
void read_tensor_parallel(const GivenKeys& keys, Plan& plan) {
  if (keys.context.model == nullptr || plan.tensor_parallel_2d.any()) return;
  const Transformer& model = *keys.context.model;
  for (std::int32_t i = variants(model) > 0 ? 0 : -1; i < variants(model); ++i) {
    read_tensor_parallel(keys, variant(model, i), plan.tensor_parallel);
  }
}

namespace {

// Replicas of one GPU each take turns with it: torch's DataParallel has no other dimension.
void check_through_one_gpu(const GivenKeys& keys, const Plan& plan) {
  if (plan.data_parallel_algorithm != DataParallelAlgorithm::ParameterServer) return;
  const auto fail = [&](const std::string& why) {
    keys.fail(&Plan::data_parallel_algorithm, "parameter_server " + why);
  };
  if (plan.zero_stage > 0) return fail("shards nothing: zero_stage must be 0");
  const std::pair<PlanField, std::int32_t> sizes[] = {
      {&Plan::pipeline_parallel, plan.pipeline_parallel},
      {&Plan::tensor_parallel, plan.tensor_parallel},
      {&Plan::context_parallel, plan.context_parallel}};
  for (const auto& [key, size] : sizes) {
    if (size == 1) continue;
    return fail("has replicas of one GPU: " + std::string(key_of(key)) + " must be 1, not " +
                number(size));
  }
  const Transformer* model = keys.context.model;
  if (model != nullptr && model->prediction_layers > 0) {
    keys.fail(&Plan::data_parallel_algorithm,
              "parameter_server gathers the outputs of one head, and the model predicts further "
              "tokens",
              true);
  }
}

}  // namespace

// The mesh: t p c d = gpus, the remaining one derived.
void read_mesh(const GivenKeys& keys, Plan& plan) {
  check_through_one_gpu(keys, plan);
  const std::int64_t t = plan.tensor_parallel, p = plan.pipeline_parallel,
                     c = plan.context_parallel;
  std::int64_t inner = t * p;  // each at most 2^20
  if (inner <= kMaxRanks) inner *= c;
  if (inner > kMaxRanks) {
    return keys.fail(&Plan::tensor_parallel,
                     product({t, p, c}) + " GPUs of one replica are beyond 2^20");
  }
  const std::int64_t d = keys.integer(&Plan::data_parallel, 0);
  if (d * inner > kMaxRanks) {
    return keys.fail(&Plan::data_parallel, product({t, p, c, d}) + " GPUs are beyond 2^20");
  }
  const std::int64_t gpus = keys.context.gpus ? *keys.context.gpus
                            : d > 0           ? d * inner
                                              : keys.context.gpus_per_node;
  if (d > 0 && d * inner != gpus) {
    return keys.fail(
        &Plan::data_parallel,
        "tensor x pipeline x context x data parallel = " + product({t, p, c, d}) + " = " +
            number(d * inner) + ", but there are " + number(gpus) + " gpus" +
            (gpus % inner == 0 ? ": data_parallel " + number(gpus / inner) + " fits them"
                               : std::string()));
  }
  if (gpus % inner != 0) {
    return keys.report.fail(
        keys.context.gpus ? keys.context.gpus_line : keys.json.line,
        keys.context.gpus ? "gpus" : "plan",
        std::string(keys.context.gpus ? "" : "gpus is left out, and one node's ") + number(gpus) +
            " gpus are not a multiple of tensor x pipeline x context parallel = " +
            product({t, p, c}) + " = " + number(inner));
  }
  plan.data_parallel = static_cast<std::int32_t>(gpus / inner);
  if (const Transformer* model = keys.context.model) {
    for (std::int32_t i = variants(*model) > 0 ? 0 : -1; i < variants(*model); ++i) {
      meet_needs(keys, variant(*model, i), plan);
    }
  }
}

// Axes that the order leaves out must have size 1 and come last.
void read_rank_order(const GivenKeys& keys, Plan& plan) {
  constexpr std::array kDefault{Axis::Tensor, Axis::Context, Axis::Expert, Axis::Data,
                                Axis::Pipeline};
  plan.rank_order.assign(kDefault.begin(), kDefault.end());
  const JsonValue* order = keys.given(&Plan::rank_order);
  if (order == nullptr) return;
  plan.rank_order.clear();
  for (std::size_t at = 0; at <= order->text.size();) {
    const std::size_t end = std::min(order->text.find('-', at), order->text.size());
    const std::string word = order->text.substr(at, end - at);
    const auto found = std::ranges::find(kAxisNames, word);
    if (found == kAxisNames.end()) {
      return keys.fail(
          &Plan::rank_order,
          json_excerpt(word) + " is not one of tp, cp, ep, dp, pp (as in tp-cp-ep-dp-pp)");
    }
    const auto axis = static_cast<Axis>(found - kAxisNames.begin());
    if (std::ranges::find(plan.rank_order, axis) != plan.rank_order.end()) {
      return keys.fail(&Plan::rank_order, word + " stands twice");
    }
    plan.rank_order.push_back(axis);
    at = end + 1;
  }
  const std::array<std::int32_t, 5> size{plan.tensor_parallel, plan.context_parallel,
                                         plan.expert_parallel, plan.data_parallel,
                                         plan.pipeline_parallel};
  for (const Axis axis : kDefault) {
    if (std::ranges::find(plan.rank_order, axis) != plan.rank_order.end()) continue;
    const std::int32_t ranks = size[static_cast<std::size_t>(axis)];
    if (ranks > 1) {
      return keys.fail(&Plan::rank_order, std::string(name_of(axis)) + " is missing, and has " +
                                              number(ranks) + " ranks");
    }
    plan.rank_order.push_back(axis);
  }
}

}  // namespace rehearse
