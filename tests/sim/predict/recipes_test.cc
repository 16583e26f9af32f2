// SPDX-License-Identifier: Apache-2.0
// Recipes of today: packed documents, other optimizers, products with a scale per block.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "schedules/body/body.h"
#include "schedules/scenario/layout.h"
#include "schedules/scenario/scenario.h"
#include "sim/formulas/packed_documents.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {
namespace {

Result<Scenario> read(const std::string& plan, const std::string& cluster = "dgx-h100") {
  const std::string text = R"({"model": "llama3-8b", "gpus": 8, "cluster": ")" + cluster +
                           R"(", "plan": {"micro_batch": 1, "global_batch": 32,
                               "sequence_length": 8192, )" +
                           plan + "}}";
  return parse_scenario(text, "test", 1, {});
}
Result<Prediction> predicted(const std::string& plan, const std::string& cluster = "dgx-h100") {
  const Result<Scenario> scenario = read(plan, cluster);
  if (!scenario) return scenario.error();
  const Result<Cluster> hardware = read_cluster(scenario.value().cluster);
  EXPECT_TRUE(hardware);
  return predict(scenario.value(), hardware.value());
}
Prediction made(const std::string& plan, const std::string& cluster = "dgx-h100") {
  Result<Prediction> result = predicted(plan, cluster);
  EXPECT_TRUE(result) << result.error().message;
  return std::move(result).value();
}

// Drawn with documents of exponential lengths in 8,192 tokens (techniques of packing are measured
// so): the pairs inside documents are .117, .219, .568, .852 of all.
TEST(PackedDocuments, ShareOfPairsInsideADocument) {
  Plan plan;
  plan.sequence_length = 8192;
  for (const auto& [length, share] :
       {std::pair{512.0, 0.117}, {1024.0, 0.219}, {4096.0, 0.568}, {16384.0, 0.852}}) {
    plan.document_length = length;
    EXPECT_NEAR(plan.attention_share(), share, 0.01 * share) << length;
  }
  plan.document_length = 0;
  EXPECT_EQ(plan.attention_share(), 1);
}

// Against lengths drawn: exponential, cut at the longest so that the mean is what is said.
TEST(PackedDocuments, ShareOfPairsWithALongestDocument) {
  Plan plan;
  plan.sequence_length = 8192;
  for (const auto& [mean, longest] :
       {std::pair{512.0, 1024}, {1024.0, 1100}, {1000.0, 4096}, {2048.0, 8192}, {2048.0, 100000}}) {
    plan.document_length = mean;
    plan.document_maximum = longest;
    const double scale = plan.document_scale();
    std::mt19937_64 random(7);
    std::exponential_distribution<double> length(1 / scale);
    double pairs = 0, lengths = 0, documents = 0;
    constexpr int kSequences = 20000;
    for (int i = 0; i < kSequences; ++i) {
      // A sequence begins anywhere in a stream of documents.
      double left = 8192, skipped = 20 * mean * static_cast<double>(random() >> 11) * 0x1p-53;
      while (left > 0) {
        const double drawn = std::min<double>(length(random), longest);
        lengths += drawn;
        ++documents;
        const double rest = std::min(left, std::max(drawn - skipped, 0.0));
        skipped = std::max(skipped - drawn, 0.0);
        pairs += rest * rest;
        left -= rest;
      }
    }
    EXPECT_NEAR(lengths / documents, mean, 0.02 * mean) << longest;
    const double share = pairs / kSequences / (8192.0 * 8192.0);
    EXPECT_NEAR(plan.attention_share(), share, 0.03 * share) << mean << ' ' << longest;
  }
  plan.document_length = 0;
  EXPECT_EQ(plan.attention_share(), 1);
}

// The largest of 64 ranks, one sequence each, over the mean: 2.2, 2.65, 1.8, 1.2. Several sequences
// between meetings even out, one rank has nobody to wait for.
TEST(PackedDocuments, TheBusiestOfManyRanks) {
  for (const auto& [length, busiest] :
       {std::pair{512.0, 2.2}, {1024.0, 2.65}, {4096.0, 1.8}, {16384.0, 1.2}}) {
    EXPECT_NEAR(busiest_documents(length, 8192, 64, 1), busiest, 0.12 * busiest) << length;
  }
  EXPECT_EQ(busiest_documents(1024, 8192, 1, 1), 1);
  EXPECT_LT(busiest_documents(1024, 8192, 64, 64), 1.3);
}

// Attention alone has less to do; every other node of a layer is as before.
TEST(PackedDocuments, ShortenAttentionAlone) {
  const std::string plan = R"("zero_stage": 1)";
  const Result<Scenario> whole = read(plan), packed = read(plan + R"(, "document_length": 1024)");
  ASSERT_TRUE(whole && packed);
  const auto body_of = [](const Scenario& scenario) {
    return make_body({scenario.model, scenario.plan},
                     {.segment = SegmentKind::Layer, .direction = Direction::Forward});
  };
  const Body a = body_of(whole.value()), b = body_of(packed.value());
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    const bool attention = a.nodes[i].kind() == NodeKind::Attention;
    const double share = attention ? packed.value().plan.attention_share() : 1;
    EXPECT_DOUBLE_EQ(b.nodes[i].flops, share * a.nodes[i].flops);
    EXPECT_EQ(b.nodes[i].bytes, a.nodes[i].bytes);
  }
  EXPECT_LT(made(plan + R"(, "document_length": 1024)").step_s, made(plan).step_s);
  EXPECT_FALSE(read(plan + R"(, "document_length": 1024, "attention_kernel": "unfused")"));
  EXPECT_FALSE(read(plan + R"(, "document_length": {"mean": 2048, "maximum": 1024})"));
  const Result<Scenario> both =
      read(plan + R"(, "document_length": {"mean": 1024, "maximum": 2048})");
  ASSERT_TRUE(both) << both.error().message;
  EXPECT_EQ(both.value().plan.document_maximum, 2048);
  EXPECT_LT(both.value().plan.attention_share(), packed.value().plan.attention_share());
}

// The busiest rank has more pairs than the mean one, and no more of what a kernel takes without
// any.
TEST(PackedDocuments, NeverCostMoreThanWholeSequences) {
  const auto step_of = [](const std::string& keys) {
    const Result<Scenario> scenario = parse_scenario(
        R"({"model": "gpt2-124m", "gpus": 8, "cluster": "dgx-h100", "plan": {"context_parallel": 2,
            "micro_batch": 1, "global_batch": 16, "runtime": "rehearse", )" +
            keys + "}}",
        "test", 1, {});
    EXPECT_TRUE(scenario) << scenario.error().message;
    return predict(scenario.value(), read_cluster(scenario.value().cluster).value()).value().step_s;
  };
  for (const char* length : {"128", "256", "512"}) {
    const std::string whole = R"("sequence_length": )" + std::string(length);
    EXPECT_LT(step_of(whole + R"(, "document_length": 200)"), step_of(whole)) << length;
  }
}

// Per parameter, bf16 with fp32 master weights: AdamW 12 bytes; its moments in 8 bit with a scale
// for each 256 values 4 + 2 (1 + 4/256); Lion, with one moment, 8; Muon 8 for the matrices of
// layers, 12 for the rest.
TEST(Optimizer, BytesOfItsStates) {
  const std::string plan = R"("data_parallel": 8, "zero_stage": 1)";
  const auto bytes = [&](const std::string& optimizer) {
    const Prediction p = made(plan + R"(, "optimizer": ")" + optimizer + "\"");
    return static_cast<double>(p.memory.ranks[0].parts.optimizer);
  };
  const double owned = static_cast<double>(made(plan).parameters) / 8;
  const double adamw = bytes("adamw");
  EXPECT_NEAR(adamw, 12 * owned, 0.01 * adamw);
  EXPECT_NEAR(bytes("adamw_8bit") / adamw, 6.03125 / 12, 0.005);
  EXPECT_NEAR(bytes("lion") / adamw, 8.0 / 12, 1e-4);  // one moment; blocks are of 512 B
  const double tables = 2.0 * 128256 * 4096 / 8.03e9;  // embedding and head
  EXPECT_NEAR(bytes("muon") / adamw, (8 + 4 * tables) / 12, 0.005);
}

// Newton-Schulz of m x n, m <= n: 5 (4 m^2 n + 2 m^3) FLOPs, once per step. Owners of whole
// matrices share it: with ZeRO-1 over 8 replicas an eighth.
TEST(Optimizer, MuonAddsItsProductsOncePerStep) {
  const std::string whole = R"("data_parallel": 8, "zero_stage": 0)";
  const std::string shared = R"("data_parallel": 8, "zero_stage": 1)";
  const std::string muon = R"(, "optimizer": "muon")";
  const double all = made(whole + muon).step_s - made(whole).step_s;
  const double eighth = made(shared + muon).step_s - made(shared).step_s;
  // Llama 3 8B, per layer: q and o 4096 x 4096, k and v 1024 x 4096, up and gate as one matrix of
  // 28672 x 4096, down 4096 x 14336.
  const auto flops = [](double m, double n) { return 5 * (4 * m * m * n + 2 * m * m * m); };
  const double layer =
      2 * flops(4096, 4096) + 2 * flops(1024, 4096) + flops(4096, 28672) + flops(4096, 14336);
  const double at_peak = 32 * layer / 989.4e12;
  EXPECT_GT(all, at_peak);
  EXPECT_LT(all, 2.5 * at_peak);
  EXPECT_GT(eighth, 0);
  EXPECT_LT(eighth, 0.25 * all);
}

TEST(Optimizer, WhatIsNotPricedIsRefused) {
  EXPECT_FALSE(read(R"("optimizer": "muon", "runtime": "rehearse")"));
  EXPECT_FALSE(read(R"("optimizer": "adamw_8bit", "offload": "optimizer")"));
  EXPECT_FALSE(read(R"("optimizer": "muon", "precision": {"optimizer": 4})"));
}

// Measured by torchao on 8 B200s (Llama 3 8B, FSDP2, compiled, sequence 8192, batch 1 per GPU):
// mxfp8 +20.0 % tokens/s over bf16. Four bits are faster again; GPUs before Blackwell have neither.
TEST(Precision, BlockScaledProducts) {
  const auto tokens = [](const std::string& precision) {
    return made(R"("data_parallel": 8, "zero_stage": 3, "runtime": "torchtitan", "compiled": true,
                   "recompute": "selective", "precision": ")" +
                    precision + "\"",
                "dgx-b200")
        .tokens_per_s;
  };
  const double bf16 = tokens("bf16"), mxfp8 = tokens("mxfp8"), nvfp4 = tokens("nvfp4");
  EXPECT_NEAR(mxfp8 / bf16, 1.20, 0.12);
  EXPECT_GT(nvfp4, mxfp8);
  const Result<Prediction> hopper = predicted(R"("precision": "mxfp8")");
  ASSERT_FALSE(hopper);
  EXPECT_NE(hopper.error().message.find("no products in mxfp8"), std::string::npos);
  EXPECT_FALSE(read(R"("precision": "nvfp4", "runtime": "rehearse")", "dgx-b200"));
}

}  // namespace
}  // namespace rehearse::sim
