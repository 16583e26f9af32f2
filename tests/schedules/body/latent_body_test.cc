// SPDX-License-Identifier: Apache-2.0
// A dense DeepSeek layer of our executor, by the closed forms: h 64, a 4 heads, q 24, c 16, n 8,
// r 4, v 6, f 96, s 32, one sample.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedules/body/own/body_rehearse.h"
#include "schedules/scenario/scenario.h"
#include "tests/schedules/body/apart_case.h"

namespace rehearse {
namespace {

using Columns = std::vector<std::int64_t>;
constexpr std::int64_t kH = 64, kA = 4, kQ = 24, kC = 16, kN = 8, kR = 4, kV = 6, kF = 96, kS = 32;

Scenario scenario(const std::string& query_rank, const std::vector<std::string>& keys) {
  const std::string text =
      R"({"model": {"model_type": "deepseek_v3", "hidden_size": 64, "num_attention_heads": 4,
          "num_hidden_layers": 2, "first_k_dense_replace": 2, "intermediate_size": 96,
          "vocab_size": 61, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
          "v_head_dim": 6, "q_lora_rank": )" +
      query_rank + R"(}, "plan": {"micro_batch": 1, "global_batch": 2, "sequence_length": 32,
          "precision": "fp32"}})";
  ScenarioOptions options{.runtime = "rehearse", .needs_cluster = false};
  for (const std::string& key : keys) options.overrides.push_back("plan." + key);
  Result<Scenario> read = parse_scenario(text, "latent", 0, options);
  EXPECT_TRUE(read) << read.error().message;
  return std::move(read).value();
}

Body layer(const Scenario& s, Direction direction) {
  return make_rehearse_body({s.model, s.plan},
                            {.segment = SegmentKind::Layer, .direction = direction});
}

// Two FLOPs per weight and token; of the core half the square times keys and values.
TEST(LatentBody, CountsTheFlopsOfItsProducts) {
  for (const bool compressed : {true, false}) {
    const Scenario s = scenario(compressed ? "24" : "null", {});
    const std::int64_t queries = compressed ? kH * kQ + kQ * kA * (kN + kR) : kH * kA * (kN + kR);
    const std::int64_t matrices =
        queries + kH * (kC + kR) + kC * kA * (kN + kV) + kA * kV * kH + 3 * kH * kF;
    const std::int64_t pairs = kS * kS / 2, keys = kN + kR;
    EXPECT_EQ(layer(s, Direction::Forward).flops(),
              2 * kS * matrices + 2 * pairs * kA * (keys + kV));
    const double both = layer(s, Direction::Backward).flops();
    EXPECT_EQ(both, 4 * kS * matrices + 2 * pairs * kA * (3 * keys + 2 * kV));
    EXPECT_EQ(
        layer(s, Direction::InputGradient).flops() + layer(s, Direction::WeightGradient).flops(),
        both);
  }
}

// Sequence parallelism gathers what is compressed in place of the layer's input; without compressed
// queries these need the input.
TEST(LatentBody, GathersWhatIsCompressed) {
  const auto gathered = [](const std::string& query_rank, Direction direction, Kernel kernel) {
    const Scenario s = scenario(query_rank, {"tensor_parallel=2", "sequence_parallel=true"});
    Columns columns;
    for (const Node& node : layer(s, direction).nodes) {
      if (node.kernel == kernel) columns.push_back(node.bytes / (4 * kS));
    }
    return columns;
  };
  EXPECT_EQ(gathered("24", Direction::Forward, Kernel::AllGather), (Columns{kQ, kC, kR, kH}));
  EXPECT_EQ(gathered("null", Direction::Forward, Kernel::AllGather), (Columns{kH, kC, kR, kH}));
  EXPECT_EQ(gathered("24", Direction::Backward, Kernel::ReduceScatter), (Columns{kH, kR, kC, kQ}));
  EXPECT_EQ(gathered("null", Direction::Backward, Kernel::ReduceScatter),
            (Columns{kH, kR, kC, kH}));
}

TEST(LatentBody, OfAnRAndOfTheBackwardBehindItAreOneTogether) {
  for (const char* queries : {"24", "null"}) {
    for (const char* recompute : {"recompute=selective", "recompute=full"}) {
      const Scenario s = scenario(queries, {recompute});
      expect_apart_is_fused({s.model, s.plan}, {SegmentKind::Layer, 0});
    }
  }
}

}  // namespace
}  // namespace rehearse
