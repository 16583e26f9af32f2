// SPDX-License-Identifier: Apache-2.0
// A router with a correction bias (glm4_moe: sigmoids, groups, dense first layer, shared experts)
// and experts that drop copies, in many layouts.
#include "tests/exec/step/experts_case.h"
#include "tests/exec/step/forwarding_kernels.h"

namespace rehearse::exec {
namespace {

// 8 experts in 4 groups of which 2 are kept; layer 0 of 3 is dense.
TinyOptions glm() {
  return {.changed = {{"model_type", "glm4_moe"},
                      {"num_hidden_layers", 3},
                      {"num_local_experts", 8},
                      {"moe_intermediate_size", 24},
                      {"intermediate_size", 48},
                      {"n_shared_experts", 1},
                      {"first_k_dense_replace", 1},
                      {"n_group", 4},
                      {"topk_group", 2},
                      {"head_dim", 16},
                      {"routed_scaling_factor", 2.5},
                      {"use_qk_norm", true},
                      {"attention_bias", true},
                      {"pad_token_id", nullptr}}};
}
TinyRun train_glm(std::vector<std::string> keys, const TinyOptions& how = glm()) {
  keys.insert(keys.end(), {"train.router_bias_rate=0.01", "expert_capacity=8"});
  return train_tiny("mixtral", keys, how);
}

// After each step bias += 0.01 sign(mean count - count), from the formula's first values on; the
// layer that is dense keeps none. 64 tokens choose 2 experts each.
TEST(RouterBias, MovesByTheSignOfTheMeanLessTheCount) {
  const TinyRun run = train_glm({"micro_batch=4"});
  ASSERT_EQ(run.error, "");
  std::vector<float> bias(3 * 8, 0.0F);
  for (std::size_t i = 8; i < bias.size(); ++i) {
    const std::string name =
        "model.layers." + std::to_string(i / 8) + ".mlp.gate.e_score_correction_bias";
    bias[i] = static_cast<float>(formula_weight(name, static_cast<std::int64_t>(i % 8), 3));
  }
  bool moved = false;
  for (std::size_t step = 0; step < run.rows.size(); ++step) {
    for (std::size_t i = 8; i < bias.size(); ++i) {
      const std::int64_t count = run.rows[step][i], mean = 64 * 2 / 8;
      const double by = count < mean ? 0.01 : count > mean ? -0.01 : 0;
      moved |= by != 0;
      bias[i] = static_cast<float>(static_cast<double>(bias[i]) + by);
    }
    EXPECT_EQ(run.corrections[step], bias) << "step " << step;
  }
  EXPECT_TRUE(moved);
}

// The same experts are chosen everywhere, so the biases have the same bits; losses and norms differ
// by the order of sums alone.
TEST(RouterBias, IsTheSameInEveryLayout) {
  const TinyRun one = train_glm({"micro_batch=4"});
  ASSERT_EQ(one.error, "");
  for (const std::vector<std::string>& keys : expert_layouts()) {
    SCOPED_TRACE(testing::PrintToString(keys));
    expect_same(train_glm(keys), one);
  }
}

enum class Fault { None, NoCorrection, NoGroups, NoGradient, NormalisedAgain };

class Faulty final : public Forwarding {
 public:
  Faulty(std::unique_ptr<Kernels> inner, Fault fault)
      : Forwarding(std::move(inner)), fault_(fault) {}
  void route(Lane lane, const RouteShape& shape, const float* logits, std::int32_t* chosen,
             float* weights, float* scores, float* logsum) override {
    RouteShape other = shape;
    if (fault_ == Fault::NoCorrection) other.correction = nullptr;
    if (fault_ == Fault::NoGroups) other.kept_groups = other.groups;
    if (fault_ == Fault::NormalisedAgain) other.scale = 1;
    inner_->route(lane, other, logits, chosen, weights, scores, logsum);
  }
  void route_backward(Lane lane, const RouteShape& shape, const float* d_weights,
                      const std::int32_t* chosen, const float* weights, const float* scores,
                      const float* logsum, const float* counts, void* d_logits) override {
    inner_->route_backward(lane, shape, d_weights, chosen, weights, scores, logsum, counts,
                           d_logits);
    if (fault_ == Fault::NoGradient)
      std::fill_n(static_cast<float*>(d_logits), shape.tokens * shape.experts, 0.0F);
  }

 private:
  Fault fault_;
};

// Each changes losses or norms by far more than the bounds that layouts are held to.
TEST(RouterBias, FaultsOfTheRouterAreFound) {
  const TinyRun good = train_glm({"micro_batch=4"});
  for (const Fault fault : {Fault::None, Fault::NoCorrection, Fault::NoGroups, Fault::NoGradient,
                            Fault::NormalisedAgain}) {
    TinyOptions how = glm();
    how.backend = [fault] {
      Backend made = make_cpu_backend();
      made.kernels = std::make_unique<Faulty>(std::move(made.kernels), fault);
      return made;
    };
    const TinyRun run = train_glm({"micro_batch=4"}, how);
    ASSERT_EQ(run.losses.size(), good.losses.size()) << run.error;
    const double far = std::max(furthest(run.losses, good.losses), furthest(run.norms, good.norms));
    std::printf("fault %d: off by %.1e\n", static_cast<int>(fault), far);
    if (fault == Fault::None) {
      EXPECT_EQ(far, 0);
    } else {
      EXPECT_GE(far, 1e-4) << static_cast<int>(fault);
    }
  }
}

// PyTorch's numbers of Mixtral with capacity factor 1 (tests/data/golden/experts/README.md): of the
// 64 tokens of a rank each expert keeps 32 copies. What the router asked for is what is computed
// and what is dropped.
void expect_capacity(const TinyRun& run) {
  ASSERT_EQ(run.error, "");
  const Json& of = golden()["models"]["mixtral"]["variants"]["capacity"];
  ASSERT_EQ(run.losses.size(), 8);
  for (std::size_t step = 0; step < 8; ++step) {
    std::size_t i = 0;
    std::int64_t dropped = 0;
    for (const Json& layer : of["tokens_per_expert"][step]) {
      for (const Json& count : layer) {
        EXPECT_EQ(run.rows[step][i] + run.dropped[step][i], count.get<std::int64_t>());
        EXPECT_LE(run.rows[step][i], 32);
        dropped += run.dropped[step][i++];
      }
    }
    EXPECT_EQ(dropped, of["dropped"][step].get<std::int64_t>()) << "step " << step;
  }
  expect_numbers(run, of["f64"], "mixtral capacity");
}

TEST(ExpertDrop, TrainsAsPyTorchWhereARankBringsTheSameTokens) {
  for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
           {"micro_batch=4"},
           {"micro_batch=4", "recompute=full"},
           {"micro_batch=4", "pipeline_parallel=2", "schedule=zb_h1"},
           {"micro_batch=4", "tensor_parallel=2"}}) {
    std::vector<std::string> all = keys;
    all.emplace_back(R"(expert_capacity={"drop": 1.0})");
    SCOPED_TRACE(keys.back());
    expect_capacity(train_tiny("mixtral", all));
  }
}

// A replica's micro-batches are one rank's, so each drops the same copies; the experts' ranks have
// exactly the room that can be needed, and never too little.
TEST(ExpertDrop, IsTheSameWhereSourcesBringTheSameShards) {
  for (const char* factor : {R"(expert_capacity={"drop": 0.75})", "expert_capacity=drop"}) {
    const TinyRun one = train_tiny("mixtral", {"micro_batch=1", factor});
    ASSERT_EQ(one.error, "");
    for (const std::vector<std::string>& keys : std::vector<std::vector<std::string>>{
             {"data_parallel=2", "expert_parallel=2"},
             {"data_parallel=4", "expert_parallel=4", "zero_stage=3"},
             {"data_parallel=4", "expert_parallel=2", "expert_dispatch=all_gather"},
             {"data_parallel=4", "expert_parallel=4", "expert_dispatch=deduplicated"},
             {"data_parallel=4", "expert_parallel=2", "zero_stage=2",
              "expert_dispatch=deduplicated"},
             {"data_parallel=4", "expert_parallel=4", "recompute=full"},
             {"data_parallel=2", "expert_tensor_parallel=2"},
             {"data_parallel=2", "expert_parallel=2", "pipeline_parallel=2", "schedule=zb_h1"}}) {
      std::vector<std::string> all = keys;
      all.insert(all.end(), {"micro_batch=1", factor});
      SCOPED_TRACE(keys.back() + factor);
      expect_same(train_tiny("mixtral", all), one);
    }
  }
}

}  // namespace
}  // namespace rehearse::exec
