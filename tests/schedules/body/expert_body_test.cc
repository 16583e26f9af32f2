// SPDX-License-Identifier: Apache-2.0
// An expert layer's nodes: the worked example of the reference (h 64, f 128 gated, E 4, k 2, e 2,
// q 1, 8 tokens on each of two ranks) byte by byte, and identities between plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "schedules/body/body.h"
#include "schedules/body/sizes.h"
#include "schedules/scenario/scenario.h"
#include "tests/schedules/body/apart_case.h"

namespace rehearse {
namespace {

constexpr std::int64_t h = 64, f = 128, E = 4, k = 2, n = 8;

Scenario scenario(const std::string& plan, const std::string& gpus, const std::string& more = "",
                  std::int64_t tokens = n) {
  const std::string text =
      R"({"model": {"model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
          "num_local_experts": 4, "num_experts_per_tok": 2, "vocab_size": 256)" +
      more + R"(}, "cluster": "dgx-h100", "gpus": )" + gpus +
      R"(, "plan": {"micro_batch": 1, "sequence_length": )" + std::to_string(tokens) + ", " + plan +
      "}}";
  const Result<Scenario> read = parse_scenario(text, "x.json", 1, {});
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  return read ? read.value() : Scenario{};
}
Body body(const Scenario& s, Direction direction) {
  return make_body({s.model, s.plan},
                   {.segment = SegmentKind::Layer, .experts = true, .direction = direction});
}
std::int64_t bytes(const Body& b, const std::function<bool(const Node&)>& counts) {
  std::int64_t sum = 0;
  for (const Node& node : b.nodes) sum += counts(node) ? node.bytes : 0;
  return sum;
}
double flops(const Body& b, const std::function<bool(const Node&)>& counts) {
  double sum = 0;
  for (const Node& node : b.nodes) sum += counts(node) ? node.flops : 0;
  return sum;
}
bool moves_rows(const Node& node) {
  return node.kernel == Kernel::Dispatch || node.kernel == Kernel::Combine;
}
bool is_router(const Node& node) {
  return node.name.find("router") != std::string_view::npos;
}
bool of_experts(const Node& node) {
  return is_grouped(node.kernel);
}

// Experts of tokens 0 ... 7 of both ranks.
constexpr std::array<std::array<std::array<int, 2>, 8>, 2> kChosen{{
    {{{0, 1}, {0, 2}, {0, 3}, {1, 0}, {1, 2}, {2, 0}, {0, 1}, {3, 1}}},
    {{{2, 3}, {2, 3}, {3, 2}, {1, 2}, {2, 1}, {0, 2}, {3, 0}, {2, 3}}},
}};

// What the router's choice makes of the mean: rows of both ranks 15 and 17, their mean the body's
// R = 16; all sums over ranks are twice the body's.
TEST(ExpertBody, IsTheMeanOfTheWorkedExample) {
  std::array<std::array<std::int64_t, 2>, 2> rows{};  // by source and destination rank
  std::array<std::array<std::int64_t, 4>, 2> counts{};
  for (std::size_t rank = 0; rank < 2; ++rank) {
    for (const auto& token : kChosen[rank]) {
      for (const int expert : token) {
        ++rows[rank][static_cast<std::size_t>(expert) / 2];
        ++counts[rank][static_cast<std::size_t>(expert)];
      }
    }
  }
  EXPECT_EQ(rows[0], (std::array<std::int64_t, 2>{11, 5}));
  EXPECT_EQ(rows[1], (std::array<std::int64_t, 2>{4, 12}));
  EXPECT_EQ(counts[0], (std::array<std::int64_t, 4>{6, 5, 3, 2}));
  EXPECT_EQ(counts[1], (std::array<std::int64_t, 4>{2, 2, 7, 5}));
  const std::int64_t received[] = {rows[0][0] + rows[1][0], rows[0][1] + rows[1][1]};
  const Scenario s = scenario(R"("expert_parallel": 2)", "2");
  const ExpertShape shape = Layout(s.model, s.plan).shape.experts;
  EXPECT_EQ(shape.tokens, n);
  EXPECT_EQ(2 * shape.rows, received[0] + received[1]);  // 15 + 17
  EXPECT_EQ(rows[0][0] + rows[0][1], shape.copies);      // sum of sends = n k
  EXPECT_EQ(received[1] * 16, 17 * shape.rows);          // imbalance 17/16

  const Body forward = body(s, Direction::Forward);
  EXPECT_EQ(bytes(forward, moves_rows), 2 * 2048);  // dispatch and combine: the whole buffers
  EXPECT_EQ(bytes(forward, [](const Node& node) { return node.kernel == Kernel::AllToAll; }),
            4 * n * k);  // weights, fp32
  EXPECT_EQ(flops(forward, of_experts), (737280 + 835584) / 2);
  EXPECT_EQ(flops(forward, is_router), 4096);
  // Kept in bf16: X, U, A of 15 and of 17 rows.
  EXPECT_EQ(2 * 2 * shape.rows * h, 1920 + 2176);
  EXPECT_EQ(2 * 2 * shape.rows * 2 * f, 7680 + 8704);
  EXPECT_EQ(2 * 2 * shape.rows * f, 3840 + 4352);

  // Parameters: an expert 24,576, two on each rank; the router 256 on both.
  std::int64_t experts = 0, router = 0;
  for (const ParameterTensor& tensor :
       segment_parameters({s.model, s.plan}, SegmentKind::Layer, 0)) {
    if (tensor.expert) experts += tensor.elements;
    if (tensor.name == "router.weight") router += tensor.elements;
  }
  EXPECT_EQ(experts, 49152);
  EXPECT_EQ(router, 256);
  EXPECT_EQ(expert_parameters(s.model), 24576);
}

TEST(ExpertBody, TheAllGatherDispatcherMovesTheTokensOfAllRanks) {
  const Scenario s = scenario(R"("expert_parallel": 2, "expert_dispatch": "all_gather")", "2");
  const Body forward = body(s, Direction::Forward);
  EXPECT_EQ(bytes(forward, moves_rows), 0);
  const auto over_block = [](Kernel kernel) {
    return [kernel](const Node& node) {
      return node.kernel == kernel && node.axis == Axis::ExpertBlock;
    };
  };
  // Received: half of 2 n h B = 1,024, beside the map and weights (5 B for each of E); summed in
  // fp32.
  EXPECT_EQ(bytes(forward, over_block(Kernel::AllGather)), 2 * 1024 + 5 * 2 * n * E);
  EXPECT_EQ(bytes(forward, over_block(Kernel::ReduceScatter)), 4 * 2 * n * h);
}

TEST(ExpertBody, TheBackwardMovesWhatTheForwardDid) {
  for (const char* plan : {R"("expert_parallel": 2)", R"("expert_parallel": 4)",
                           R"("expert_parallel": 2, "expert_tensor_parallel": 2)"}) {
    const Scenario s = scenario(plan, "4");
    const Body forward = body(s, Direction::Forward), backward = body(s, Direction::Backward);
    EXPECT_GT(bytes(forward, moves_rows), 0);
    EXPECT_EQ(bytes(backward, moves_rows), bytes(forward, moves_rows));
    EXPECT_EQ(flops(backward, of_experts), 2 * flops(forward, of_experts));
    // Both halves together are the whole.
    EXPECT_EQ(flops(body(s, Direction::InputGradient), of_experts) +
                  flops(body(s, Direction::WeightGradient), of_experts),
              flops(backward, of_experts));
  }
}

// e = 1 sends nothing and sorts once; the products are those of any e.
TEST(ExpertBody, OneRankSendsNothing) {
  const Scenario one = scenario("\"recompute\": \"none\"", "2"),
                 two = scenario(R"("expert_parallel": 2)", "2");
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    const Body alone = body(one, direction), shared = body(two, direction);
    std::int64_t permutations = 0;
    for (const Node& node : alone.nodes) {
      EXPECT_EQ(collective_kind(node.kind()), OpKind::Forward) << node.name;
      permutations += node.kernel == Kernel::Permute ? 1 : 0;
    }
    EXPECT_EQ(permutations, 2);
    EXPECT_EQ(alone.flops(), shared.flops());
  }
}

// The same FLOPs, in a launch for each expert and product.
TEST(ExpertBody, ExpertsMayRunOneAfterAnother) {
  const Scenario grouped = scenario(R"("expert_parallel": 2)", "2"),
                 each = scenario(R"("expert_parallel": 2, "grouped_experts": false)", "2");
  const auto products = [](const Body& b) {
    return std::ranges::count_if(b.nodes, [](const Node& node) {
      return node.name.find("gemm fc") != std::string_view::npos ||
             node.name.find("gemm d_fc") != std::string_view::npos;
    });
  };
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    const Body together = body(grouped, direction), apart = body(each, direction);
    EXPECT_EQ(products(apart), E / 2 * products(together));
    EXPECT_EQ(std::ranges::count_if(apart.nodes, of_experts), 0);
    EXPECT_EQ(apart.flops(), together.flops());
  }
}

// E = k = 1 without its router is the dense MLP of width f.
// The count of Megatron-LM's source (core_v0.12.0), op by op: 63 forward and 68 backward beside
// attention, norms and products; a call for each of a rank's experts in each grouped product.
TEST(ExpertBody, TheHostLaunchesWhatTheProfileCounts) {
  const auto count = [](const std::string& more, Direction direction) {
    const Body made =
        body(scenario(R"("expert_parallel": 2, "data_parallel": 2)" + more, "2"), direction);
    std::array<std::int64_t, 2> sum{};
    for (const Node& node : made.nodes) {
      if (node.part == GraphPart::Attention || node.kind() == NodeKind::Gemm) continue;
      sum[0] += node.launches;
    }
    for (const Node& node : made.nodes) sum[1] += node.expert_calls;
    return sum;
  };
  const std::string eager = R"(, "eager_kernels": ["router", "permute"])";
  // beside the experts' own: norm, residual sum (forward 1 + 2, backward 2 + 1)
  EXPECT_EQ(count(eager, Direction::Forward)[0], 63 + 3);
  EXPECT_EQ(count(eager, Direction::Backward)[0], 68 + 3);
  EXPECT_EQ(count("", Direction::Forward)[0], 63 + 3 - (25 - 6) - (12 - 3) - 2 * (2 - 1));
  EXPECT_EQ(count("", Direction::Backward)[0], 68 + 3 - (30 - 8) - (14 - 3) - 2 * (3 - 1));
  EXPECT_EQ(count("", Direction::Forward)[1], 2 * E / 2);
  EXPECT_EQ(count("", Direction::Backward)[1], 4 * E / 2);
  EXPECT_EQ(count(R"(, "cuda_graphs": true)", Direction::Backward)[1], 0);
}

TEST(ExpertBody, OneExpertIsADenseLayer) {
  const Scenario s = scenario("\"recompute\": \"none\"", "1");
  Transformer model = s.model;
  model.experts.count = model.experts.per_token = 1;
  const auto of = [&](bool experts, Direction direction) {
    const Body b =
        make_body({model, s.plan},
                  {.segment = SegmentKind::Layer, .experts = experts, .direction = direction});
    return flops(b, [](const Node& node) { return !is_router(node); });
  };
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    EXPECT_EQ(of(true, direction), of(false, direction));
  }
}

// A prediction layer is a segment behind the model's last layer: a projection of 2 h to h and one
// more layer, with a pipeline also a table of its position's own; and the head runs twice.
TEST(ExpertBody, APredictionLayerIsAProjectionAndALayer) {
  const Scenario s = scenario(R"("pipeline_parallel": 2, "expert_parallel": 2)", "4");
  Transformer model = s.model;
  model.prediction_layers = 1;
  const SegmentInfo prediction{SegmentKind::Layer, static_cast<std::int32_t>(model.layers)};
  const auto flops_of = [&](const Transformer& of, const SegmentInfo& segment,
                            Direction direction) {
    return make_body({of, s.plan}, body_shape({of, s.plan}, segment, direction)).flops();
  };
  std::int64_t parameters = 0;
  for (const ParameterTensor& tensor :
       segment_parameters({model, s.plan}, prediction.kind, prediction.layer)) {
    parameters += tensor.elements;
  }
  const std::int64_t vocabulary = s.plan.padded_vocabulary;
  const std::int64_t elsewhere = (E - E / 2) * expert_parameters(model);  // on the other rank
  EXPECT_EQ(parameters, prediction_parameters(model) - elsewhere + vocabulary * h);
  const SegmentInfo head{SegmentKind::Head, -1};
  for (const Direction direction : {Direction::Forward, Direction::Backward}) {
    const double passes = direction == Direction::Forward ? 1 : 2;
    EXPECT_EQ(flops_of(model, prediction, direction),
              body(s, direction).flops() + passes * 2 * n * 2 * h * h);
    EXPECT_EQ(flops_of(model, head, direction), 2 * flops_of(s.model, head, direction));
  }
}

// 1 byte per value and 4 for 128 of them, where 16 bit has 2: n k h values leave; what comes home
// and all gradients have 16 bit. The cast of n h values reads 2 bytes and writes 1.
TEST(ExpertBody, ADispatchIn8BitSendsThatMuchLess) {
  const std::string plan =
      R"("expert_parallel": 2, "expert_dispatch": "deduplicated", "precision": "fp8")";
  const Scenario wide = scenario(plan, "2", "", 128),
                 narrow = scenario(plan + R"(, "fp8_dispatch": true)", "2", "", 128);
  const auto sent = [](const Scenario& s, Direction direction, Kernel kernel) {
    return bytes(body(s, direction), [&](const Node& node) { return node.kernel == kernel; });
  };
  const std::int64_t values = 128 * k * h;
  EXPECT_EQ(sent(wide, Direction::Forward, Kernel::Dispatch), 2 * values);
  EXPECT_EQ(sent(narrow, Direction::Forward, Kernel::Dispatch), values + values / 128 * 4);
  EXPECT_EQ(sent(narrow, Direction::Forward, Kernel::Combine), 2 * values);
  EXPECT_EQ(sent(narrow, Direction::Backward, Kernel::Dispatch), 2 * values);
  EXPECT_EQ(sent(narrow, Direction::Backward, Kernel::Combine), 2 * values);
  const Body forward = body(narrow, Direction::Forward);
  const auto cast = std::ranges::find(forward.nodes, "cast tokens to fp8", &Node::name);
  ASSERT_NE(cast, forward.nodes.end());
  EXPECT_EQ(cast->bytes, 3 * 128 * h);
}

// Under sequence parallelism an expert group of q = 1 gathers nothing over tp; attention
// does (docs/experts.md).
TEST(ExpertBody, WorksOnTheSequenceParallelShard) {
  const Scenario s = scenario(R"("tensor_parallel": 2, "sequence_parallel": true,
      "expert_parallel": 2, "expert_tensor_parallel": 1)",
                              "2");
  const Body forward = body(s, Direction::Forward);
  std::int64_t over_tensor = 0;
  for (const Node& node : forward.nodes) {
    over_tensor += collective_kind(node.kind()) != OpKind::Forward && node.axis == Axis::Tensor;
  }
  EXPECT_EQ(over_tensor, 2);  // gather and reduce-scatter of attention
  EXPECT_EQ(bytes(forward, moves_rows), 2 * 2 * (n / 2) * k * h);
}

// With an auxiliary loss a backward counts what the router chose, before copies are dropped, and
// sums E numbers over the ranks that split the tokens; that is all that it changes.
TEST(ExpertBody, AnAuxiliaryLossCountsInTheBackwardAlone) {
  struct Case {
    const char* plan;
    std::vector<Axis> sums;
  };
  for (const Case& one : std::vector<Case>{
           {R"("tensor_parallel": 2)", {}},
           {R"("tensor_parallel": 2, "sequence_parallel": true)", {Axis::Tensor}},
           {R"("context_parallel": 2, "expert_parallel": 2)", {Axis::Context}},
           {R"("tensor_parallel": 2, "sequence_parallel": true, "context_parallel": 2)",
            {Axis::Tensor, Axis::Context}}}) {
    SCOPED_TRACE(one.plan);
    const std::string plan =
        std::string(one.plan) + R"(, "runtime": "rehearse", "expert_capacity": {"drop": 1})";
    Scenario s = scenario(plan, one.sums.size() == 2 ? "4" : "2");
    const auto names = [](const Body& b) {
      std::vector<std::string_view> list;
      for (const Node& node : b.nodes) list.push_back(node.name);
      return list;
    };
    const Body forward = body(s, Direction::Forward), backward = body(s, Direction::Backward);
    s.plan.router_balance = RouterBalance::MicroBatch;
    const Body same = body(s, Direction::Forward);
    Body counting = body(s, Direction::Backward);
    EXPECT_EQ(names(same), names(forward));
    EXPECT_EQ(same.saved_for_dgrad, forward.saved_for_dgrad);
    std::vector<Axis> sums;
    for (const Node& node : counting.nodes) {
      if (node.name.starts_with("counts; all_reduce")) {
        sums.push_back(node.axis);
        EXPECT_EQ(node.bytes, 4 * E);
      } else if (node.kernel == Kernel::CountChosen) {
        EXPECT_EQ(counting.tensors[static_cast<std::size_t>(node.reads[0])].name, "chosen experts");
      }
    }
    EXPECT_EQ(sums, one.sums);
    std::erase_if(counting.nodes, [](const Node& node) { return node.name.starts_with("counts"); });
    EXPECT_EQ(names(counting), names(backward));
  }
}

// A loss of sequences has E numbers of each of a micro-batch's.
TEST(ExpertBody, EverySequenceIsCountedForItself) {
  Scenario s = scenario(R"("context_parallel": 2, "runtime": "rehearse")", "2");
  s.plan.micro_batch = 3;
  s.plan.router_balance = RouterBalance::Sequence;
  const Body counting = body(s, Direction::Backward);
  const auto sum = std::ranges::find(counting.nodes, "counts; all_reduce cp", &Node::name);
  ASSERT_NE(sum, counting.nodes.end());
  EXPECT_EQ(sum->bytes, 3 * 4 * E);
}

// Of two slices the last one's backward comes first and counts the choice of all.
TEST(ExpertBody, TheLastSliceCountsForAll) {
  Scenario s = scenario(R"("runtime": "rehearse", "pipeline_parallel": 2, "schedule": "seq_1f1b",
      "sequence_slices": 2)",
                        "2");
  s.plan.router_balance = RouterBalance::MicroBatch;
  for (const std::int32_t slice : {0, 1}) {
    const Body b = make_body({s.model, s.plan}, {.segment = SegmentKind::Layer,
                                                 .experts = true,
                                                 .direction = Direction::Backward,
                                                 .slice = slice});
    std::size_t counted = 0;
    for (const Node& node : b.nodes) {
      if (node.kernel == Kernel::CountChosen) counted += node.reads.size();
    }
    EXPECT_EQ(counted, slice == 1 ? 2U : 0U);
  }
}

// Parameters of all ranks of one set of experts are the model's, once, however they are split.
TEST(ExpertBody, EveryExpertLiesOnOneRankOfASet) {
  for (const char* plan :
       {R"("expert_parallel": 1)", R"("expert_parallel": 2)", R"("expert_parallel": 4)",
        R"("expert_parallel": 2, "expert_tensor_parallel": 2)"}) {
    const Scenario s = scenario(plan, "4");
    std::int64_t experts = 0;
    std::int32_t slots = 0;
    for (const ParameterTensor& tensor :
         segment_parameters({s.model, s.plan}, SegmentKind::Layer, 0)) {
      experts += tensor.expert ? tensor.elements : 0;
      slots += tensor.expert ? tensor.norm_slots : 0;
    }
    EXPECT_EQ(experts * s.plan.expert_parallel * s.plan.expert_tensor_parallel,
              E * expert_parameters(s.model));
    EXPECT_EQ(slots, 3 * E);  // of the norm, whatever e is
  }
}

TEST(ExpertBody, OfAnRAndOfTheBackwardBehindItAreOneTogether) {
  const std::string shared = R"(, "shared_expert_intermediate_size": 64)";
  for (const std::string& more : {std::string(), shared}) {
    for (const std::string& recompute : {std::string("selective"), std::string("full")}) {
      for (const char* dispatch : {"all_to_all", "all_gather", "deduplicated"}) {
        const Scenario s =
            scenario(R"("expert_parallel": 2, "global_batch": 2, "runtime": "rehearse",
                        "recompute": ")" +
                         recompute + R"(", "expert_dispatch": ")" + dispatch + "\"",
                     "2", more);
        expect_apart_is_fused({s.model, s.plan}, {SegmentKind::Layer, 0});
      }
    }
  }
}

}  // namespace
}  // namespace rehearse
