// SPDX-License-Identifier: Apache-2.0
// Keys of experts: defaults, legality with its reason, the folded mesh, a rank's expert shapes.
#include "schedules/scenario/expert_plan.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "schedules/ranks/group_key.h"
#include "schedules/scenario/layout.h"
#include "schedules/scenario/mesh.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {
namespace {

const char* const kMixtral =
    R"({"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 256})";
const char* const kShared =
    R"({"model_type": "deepseek_v3", "hidden_size": 64, "intermediate_size": 128,
        "moe_intermediate_size": 32, "num_hidden_layers": 4, "num_attention_heads": 8,
        "n_routed_experts": 16, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2,
        "first_k_dense_replace": 1, "vocab_size": 256})";

Result<Scenario> read(const std::string& plan, const std::string& gpus,
                      const std::string& model = kMixtral) {
  const std::string text = R"({"model": )" + model + R"(, "cluster": "dgx-h100", "gpus": )" + gpus +
                           R"(, "plan": {"sequence_length": 64, )" + plan + "}}";
  return parse_scenario(text, "x.json", 1, {});
}
Plan plan(const std::string& text, const std::string& gpus, const std::string& model = kMixtral) {
  const Result<Scenario> scenario = read(text, gpus, model);
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  return scenario ? scenario.value().plan : Plan{};
}
std::string error(const std::string& text, const std::string& gpus,
                  const std::string& model = kMixtral) {
  const Result<Scenario> scenario = read(text, gpus, model);
  return scenario ? "" : scenario.error().message;
}
bool says(const std::string& message, const std::string& words) {
  return message.find(words) != std::string::npos;
}

// Experts that are not folded are cut over tp and replicated over the rest: their groups are those
// of dense matrices in every order of the ranks, and the mesh's two directions are inverse.
TEST(ExpertPlan, UnfoldedExpertsLieAsDenseMatricesInEveryOrder) {
  for (const char* order : {"tp-cp-ep-dp-pp", "cp-ep-dp-tp-pp", "pp-dp-ep-cp-tp"}) {
    const Plan p = plan(R"("tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2,
        "sequence_parallel": true, "rank_order": ")" +
                            std::string(order) + '"',
                        "16");
    ASSERT_FALSE(p.folds_experts());
    const Mesh mesh(p);
    for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
      const Coordinates at = mesh.coordinates({r});
      EXPECT_EQ(mesh.folded(at), (Folded{at.tensor, 0, at.data * 2 + at.context})) << order;
      EXPECT_EQ(mesh.rank(mesh.folded(at), at.pipeline), Rank{r}) << order;
    }
  }
}

// Metrics of a run, as they are written beside the scenario; the plan names them by their whole
// path.
TEST(ExpertPlan, RoutingIsTakenFromARun) {
  const std::string path = testing::TempDir() + "steps.jsonl", layer = "[3,3,1,1,2,2,2,2]";
  std::ofstream(path) << "{\"expert_rows\":[" << layer << ',' << layer << ',' << layer << ','
                      << layer << "]}\n";
  const std::string given = R"("expert_parallel": 4, "expert_routing": "file:)" + path + '"';
  const Plan read = plan(given, "8");
  EXPECT_EQ(read.expert_routing, ExpertRouting::Measured);
  EXPECT_EQ(read.expert_measured.layers(4)[3], 1.5);  // 6 of 16 rows on one of four ranks
  EXPECT_TRUE(says(plan_json(read, 0), "\"expert_routing\": \"file:" + path + '"'));
  // Another model's: DeepSeek's first layer has no experts.
  EXPECT_TRUE(says(error(given, "8", kShared),
                   "plan.expert_routing: " + path + ":1: expert_rows: layer 0 has 8 experts"));
}

// q is t, or 1 where e spreads over tensor-parallel ranks too: e divides t c d, not c d.
TEST(ExpertPlan, DefaultsAreMegatrons) {
  const Plan wide =
      plan(R"("tensor_parallel": 2, "expert_parallel": 4, "sequence_parallel": true)", "8");
  EXPECT_EQ(wide.expert_tensor_parallel, 2);
  EXPECT_EQ(wide.expert_replicas(), 1);
  const Plan folded =
      plan(R"("tensor_parallel": 2, "expert_parallel": 8, "sequence_parallel": true)", "8");
  EXPECT_EQ(folded.expert_tensor_parallel, 1);
  const Plan none = plan("\"micro_batch\": 1", "8");
  EXPECT_EQ(none.expert_dispatch, ExpertDispatch::AllToAll);
  EXPECT_EQ(none.expert_routing, ExpertRouting::Uniform);
  EXPECT_EQ(none.expert_capacity, 0);
  EXPECT_FALSE(none.folds_experts());
}

// Twice the replicas turn the default from 1 to t: who compares numbers of GPUs is told, unless the
// plan says it.
TEST(ExpertPlan, TheDefaultThatChangesWithTheReplicasIsSaid) {
  const std::string sizes =
      R"("tensor_parallel": 2, "expert_parallel": 4, "sequence_parallel": true)";
  const auto notes = [](const std::string& plan, const std::string& gpus) {
    const Result<Scenario> scenario = read(plan, gpus);
    return scenario ? scenario.value().plan_notes : std::vector<std::string>{"refused"};
  };
  const std::vector<std::string> few = notes(sizes, "4"), many = notes(sizes, "8");
  ASSERT_EQ(few.size(), 1u);
  ASSERT_EQ(many.size(), 1u);
  EXPECT_TRUE(says(few[0], "plan.expert_tensor_parallel is left out: 1, since")) << few[0];
  EXPECT_TRUE(says(many[0], "plan.expert_tensor_parallel is left out: 2, as")) << many[0];
  EXPECT_TRUE(notes(sizes + R"(, "expert_tensor_parallel": 1)", "8").empty());
}

TEST(ExpertPlan, EveryKeyIsReadAndPrintedBack) {
  const Plan p = plan(R"("expert_parallel": 8, "expert_dispatch": "deduplicated",
      "expert_routing": 1.25, "expert_capacity": 1.5, "overlap": {"expert_parallel": "shared"})",
                      "8", kShared);
  EXPECT_EQ(p.expert_dispatch, ExpertDispatch::Deduplicated);
  EXPECT_EQ(p.expert_routing, ExpertRouting::Factor);
  EXPECT_EQ(p.expert_factor, 1.25);
  EXPECT_EQ(p.expert_capacity, 1.5);
  EXPECT_EQ(p.overlap_expert_parallel, ExpertOverlap::Shared);
  const std::string again = R"({"model": )" + std::string(kShared) +
                            R"(, "cluster": "dgx-h100", "gpus": 8, "plan": )" + plan_json(p, 0) +
                            "}";
  const Result<Scenario> reread = parse_scenario(again, "x.json", 1, {});
  ASSERT_TRUE(reread) << reread.error().message;
  EXPECT_EQ(reread.value().plan, p);
  EXPECT_EQ(plan(R"("expert_routing": "balanced")", "8").expert_routing, ExpertRouting::Balanced);
}

TEST(ExpertPlan, ACapacityFailsARunOrDropsCopies) {
  const Plan p = plan(R"("expert_parallel": 8, "expert_capacity": {"drop": 0.5})", "8");
  EXPECT_EQ(p.expert_drop, 0.5);
  EXPECT_EQ(p.expert_capacity, 0);
  EXPECT_NE(plan_json(p, 0).find(R"("expert_capacity": {"drop": 0.5})"), std::string::npos);
  EXPECT_EQ(row_limit(p), 0.5);
  EXPECT_EQ(plan(R"("expert_capacity": "drop")", "8").expert_drop, 1.25);
  EXPECT_EQ(row_limit(plan(R"("expert_capacity": 1.5)", "8")), 1.5);
  EXPECT_TRUE(says(error(R"("expert_capacity": "drops")", "8"), "is not one of drop"));
  EXPECT_TRUE(says(error(R"("expert_capacity": {"drop": 0})", "8"), "too small"));
  EXPECT_TRUE(says(error(R"("expert_capacity": {})", "8"), "plan.expert_capacity.drop"));
}

TEST(ExpertPlan, WhatCannotBeIsRefusedByOneReason) {
  EXPECT_TRUE(
      says(error(R"("expert_parallel": 3)", "6"), "does not divide the number of experts 8"));
  EXPECT_TRUE(
      says(error(R"("expert_parallel": 16)", "8"), "plan.expert_parallel: 16 does not divide"));
  EXPECT_TRUE(says(error(R"("expert_parallel": 2, "expert_tensor_parallel": 3)", "6"),
                   "does not divide the width of an expert 128"));
  EXPECT_TRUE(says(error(R"("tensor_parallel": 2, "expert_parallel": 2)", "8"),
                   "plan.sequence_parallel: must be true"));
  EXPECT_TRUE(says(error(R"("tensor_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 4,
      "expert_tensor_parallel": 1, "sequence_parallel": true, "rank_order": "tp-pp-cp-ep-dp")",
                         "16"),
                   "plan.rank_order: pp must come last"));
  EXPECT_TRUE(
      says(error(R"("expert_parallel": 2, "data_parallel_algorithm": "parameter_server")", "8"),
           "plan.data_parallel_algorithm: parameter_server"));
  // What our executor lacks; it trains the plain ones.
  EXPECT_EQ(plan(R"("expert_parallel": 2, "runtime": "rehearse")", "8").expert_parallel, 2);
  EXPECT_TRUE(
      says(error(R"("expert_parallel": 2, "expert_tensor_parallel": 2, "runtime": "rehearse",
      "expert_dispatch": "deduplicated")",
                 "8"),
           "plan.expert_dispatch: deduplicated with expert_tensor_parallel > 1"));
  // Experts cut as the dense matrices are, over tp alone, are cut too.
  EXPECT_TRUE(says(error(R"("tensor_parallel": 2, "sequence_parallel": true,
      "expert_dispatch": "deduplicated")",
                         "2"),
                   "plan.expert_dispatch: deduplicated with expert_tensor_parallel > 1"));
  // Alone with its experts a rank has every row: less room than that is no plan.
  EXPECT_TRUE(says(error(R"("expert_capacity": 0.5, "runtime": "rehearse")", "1"),
                   "plan.expert_capacity: runtime rehearse drops no rows"));
  EXPECT_EQ(plan(R"("expert_capacity": 1, "runtime": "rehearse")", "1").expert_capacity, 1);
  EXPECT_TRUE(says(error(R"("expert_dispatch": "nccl")", "8"), "is not one of all_to_all"));
  EXPECT_TRUE(says(error(R"("expert_routing": 0.5)", "8"), "too small"));
  EXPECT_TRUE(
      says(error(R"("expert_routing": "learned")", "8"), "is not one of balanced, uniform"));
  EXPECT_TRUE(says(error(R"("expert_routing": "file:none.jsonl")", "8"),
                   "plan.expert_routing: no such file: \"none.jsonl\""));
  EXPECT_TRUE(says(error(R"("expert_capacity": 0)", "8"), "too small"));
  EXPECT_TRUE(says(error(R"("expert_parallel": 2, "overlap": {"expert_parallel": true})", "8"),
                   "must be false, \"shared\" or \"pair\""));
  EXPECT_TRUE(says(error(R"("expert_parallel": 2, "overlap": {"expert_parallel": "shared"})", "8"),
                   "no shared expert"));
  EXPECT_TRUE(
      says(error(R"("overlap": {"expert_parallel": "pair"})", "8"), "expert_parallel is 1"));
  EXPECT_TRUE(says(error(R"("expert_slots": true)", "8"), "expert_parallel is 1"));
  EXPECT_TRUE(says(error(R"("expert_slots": true, "expert_parallel": 8,
      "expert_dispatch": "all_gather")",
                         "8"),
                   "all_gather has parts of equal size"));
  EXPECT_TRUE(says(error(R"("expert_slots": true, "expert_parallel": 8)", "8"),
                   "exchanges as many rows as are routed"));
  EXPECT_TRUE(plan(R"("expert_slots": true, "expert_parallel": 8, "runtime": "rehearse")", "8")
                  .expert_slots);
  EXPECT_TRUE(says(error(R"("fp8_dispatch": true)", "8"), "expert_parallel is 1"));
  EXPECT_TRUE(says(error(R"("fp8_dispatch": true, "expert_parallel": 8)", "8"),
                   "by expert_dispatch deduplicated alone"));
  EXPECT_TRUE(says(error(R"("fp8_dispatch": true, "expert_parallel": 8, "precision": "bf16",
      "expert_dispatch": "deduplicated")",
                         "8"),
                   "the products run in bf16"));
  EXPECT_TRUE(says(error(R"("expert_parallel": 2)", "8", R"({"model_type": "gpt2"})"),
                   "the model has no experts"));
}

// Our executor adds a bias by one of the ranks that sum; frameworks have such experts whole.
TEST(ExpertPlan, BiasesAreCutWhereOneRankAddsThem) {
  const std::string biased =
      R"({"model_type": "gpt_oss", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 4, "num_attention_heads": 8, "head_dim": 8, "vocab_size": 256})";
  const std::string cut = R"("expert_tensor_parallel": 2, "runtime": )";
  EXPECT_TRUE(says(error(cut + R"("megatron")", "2", biased),
                   "plan.expert_tensor_parallel: 2 > 1, but experts of runtime megatron"));
  EXPECT_EQ(plan(cut + R"("rehearse")", "2", biased).expert_tensor_parallel, 2);
}

// The loss of routers is the run's, of micro-batches or of sequences, whatever a file weighs.
TEST(ExpertPlan, OneLossBalancesRouters) {
  const auto asked = [](const std::string& keys) {
    std::string model = kShared;
    return model.insert(1, keys);
  };
  const std::string run = R"("micro_batch": 1}, "train": {"router_auxiliary_loss": 0.1)";
  const std::string sequences =
      R"("micro_batch": 1}, "train": {"router_auxiliary_loss": 0.1,
          "router_load_balancing": "seq_aux_loss")";
  const std::string file = asked(R"("aux_loss_alpha": 0.25, )");
  EXPECT_EQ(plan(R"("micro_batch": 1)", "1", kShared).router_balance, RouterBalance::None);
  EXPECT_EQ(plan(run, "1", kShared).router_balance, RouterBalance::MicroBatch);
  EXPECT_EQ(plan(sequences, "1", kShared).router_balance, RouterBalance::Sequence);
  EXPECT_EQ(plan(R"("micro_batch": 1)", "1", file).router_balance, RouterBalance::None);
  const std::string nothing =
      R"("micro_batch": 1}, "train": {"router_load_balancing": "seq_aux_loss")";
  EXPECT_TRUE(
      says(error(nothing, "1", kShared), "train.router_load_balancing: nothing is balanced"));
}

// t 2, c 2, d 2, e 8, q 1: one group of all 8 ranks.
TEST(FoldedMesh, OneGroupMaySpanAllOfTpCpAndDp) {
  const Plan p = plan(R"("tensor_parallel": 2, "context_parallel": 2, "expert_parallel": 8,
      "expert_tensor_parallel": 1, "sequence_parallel": true, "micro_batch": 1)",
                      "8");
  EXPECT_EQ(p.expert_replicas(), 1);
  const Mesh mesh(p);
  std::set<std::array<std::int32_t, 3>> instances;
  for (std::int32_t r = 0; r < 8; ++r) {
    instances.insert(group_key(GroupKind::Expert, mesh.coordinates({r}), mesh, {}));
    EXPECT_EQ(mesh.folded(mesh.coordinates({r})).expert, r);
  }
}

// r e q = t c d; a rank's two sets of coordinates name the same rank; every rank is in one instance
// of each kind, of that kind's size; etp, ep and edp of a rank meet in the rank alone.
TEST(FoldedMesh, IsAnotherViewOfTheSameRanks) {
  const struct {
    const char* sizes;
    const char* gpus;
    std::int32_t q, e, r;
  } rows[] = {
      {R"("tensor_parallel": 4, "expert_parallel": 2, "expert_tensor_parallel": 2)", "16", 2, 2, 4},
      {R"("tensor_parallel": 2, "context_parallel": 2, "expert_parallel": 4, "expert_tensor_parallel": 1)",
       "16", 1, 4, 4},
      {R"("tensor_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 8, "expert_tensor_parallel": 1)",
       "32", 1, 8, 2},
      {R"("expert_parallel": 4, "expert_tensor_parallel": 2)", "16", 2, 4, 2},
      {R"("tensor_parallel": 2, "context_parallel": 2, "expert_parallel": 4, "expert_tensor_parallel": 1, "rank_order": "cp-ep-dp-tp-pp")",
       "16", 1, 4, 4},
  };
  for (const auto& row : rows) {
    const Plan p =
        plan(std::string(row.sizes) + R"(, "sequence_parallel": true, "micro_batch": 1)", row.gpus);
    EXPECT_EQ(p.expert_replicas(), row.r);
    EXPECT_EQ(row.q * row.e * row.r, p.tensor_parallel * p.replicas());
    const Mesh mesh(p);
    const std::pair<GroupKind, std::int32_t> kinds[] = {{GroupKind::ExpertTensor, row.q},
                                                        {GroupKind::Expert, row.e},
                                                        {GroupKind::ExpertData, row.r},
                                                        {GroupKind::ExpertBlock, row.q * row.e}};
    for (const auto& [kind, size] : kinds) {
      std::map<std::array<std::int32_t, 3>, std::int32_t> members;
      for (std::int32_t r = 0; r < mesh.ranks(); ++r) {
        const Coordinates at = mesh.coordinates({r});
        EXPECT_EQ(mesh.rank(mesh.folded(at), at.pipeline), Rank{r});
        Coordinates first = at;
        first.tensor = 0;
        EXPECT_EQ(mesh.of_replica(mesh.replica(at), at.pipeline), first);
        ++members[group_key(kind, at, mesh, {})];
      }
      EXPECT_EQ(static_cast<std::int32_t>(members.size()), mesh.ranks() / size);
      for (const auto& [key, count] : members) EXPECT_EQ(count, size);
    }
  }
}

// Mean rows do not depend on e (docs/experts.md): R = n k q, n the tokens of the
// sequence-parallel shard.
TEST(ExpertShapes, ExpertParallelismDoesNotChangeTheRows) {
  for (const char* e : {"1", "2", "4", "8"}) {
    const Scenario s =
        read(std::string(R"("micro_batch": 2, "expert_parallel": )") + e, "8").value();
    const ExpertShape shape = Layout(s.model, s.plan).shape.experts;
    EXPECT_EQ(shape.per_rank, 8 / s.plan.expert_parallel);
    EXPECT_EQ(shape.tokens, 2 * 64);
    EXPECT_EQ(shape.rows, 2 * 64 * 2);
    EXPECT_EQ(shape.width, 128);
  }
  const Scenario s = read(R"("micro_batch": 2, "tensor_parallel": 4, "sequence_parallel": true,
      "expert_parallel": 2, "expert_tensor_parallel": 4)",
                          "8")
                         .value();
  const ExpertShape shape = Layout(s.model, s.plan).shape.experts;
  EXPECT_EQ(shape.tokens, 2 * 64 / 4);
  EXPECT_EQ(shape.copies, 64);
  EXPECT_EQ(shape.rows, 4 * 64);
  EXPECT_EQ(shape.width, 32);
}

// Who shares a whole set of experts, and how tokens come to them, by e, q and the dispatcher. Ranks
// of tp that split tokens (t 4, sequence parallelism) bring rows of their own to an expert's
// matrices; without it they bring the same tokens, and nothing is gathered.
TEST(ExpertShapes, ABlockSharesAWholeSetOfExperts) {
  const auto shape_of = [](const std::string& keys) {
    const Scenario s = read(R"("micro_batch": 2, )" + keys, "8").value();
    return Layout(s.model, s.plan).shape.experts;
  };
  const ExpertShape alone = shape_of(R"("expert_parallel": 1, "expert_dispatch": "all_gather")");
  EXPECT_EQ(alone.block, 1);
  EXPECT_FALSE(alone.gathers_tokens || alone.sends_once || alone.sends_copies());
  const ExpertShape copies = shape_of(R"("expert_parallel": 2)");
  EXPECT_EQ(copies.block, 2);
  EXPECT_TRUE(copies.sends_copies() && !copies.gathers_rows());
  const ExpertShape once = shape_of(R"("expert_parallel": 4, "expert_dispatch": "deduplicated")");
  EXPECT_EQ(once.block, 4);
  EXPECT_TRUE(once.sends_once && !once.gathers_tokens && !once.sends_copies());
  const ExpertShape all = shape_of(R"("tensor_parallel": 4, "sequence_parallel": true,
      "expert_parallel": 2, "expert_tensor_parallel": 4, "expert_dispatch": "all_gather")");
  EXPECT_EQ(all.bringing, 4);
  EXPECT_EQ(all.block, 8);
  EXPECT_TRUE(all.gathers_tokens && all.gathers_rows() && !all.sends_copies());
  const ExpertShape same = shape_of(R"("tensor_parallel": 4, "expert_tensor_parallel": 4)");
  EXPECT_EQ(same.bringing, 1);
  EXPECT_EQ(same.block, 1);
  EXPECT_EQ(same.routing.experts, 8);
  EXPECT_EQ(same.routing.per_token, 2);
}

}  // namespace
}  // namespace rehearse
