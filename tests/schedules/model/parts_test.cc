// SPDX-License-Identifier: Apache-2.0
// What a segment is made of, as the papers say; what one rank has of it adds up to the whole.
#include "schedules/model/parts.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "schedules/body/sizes.h"
#include "schedules/scenario/scenario.h"

namespace rehearse {
namespace {

using Shape = std::pair<std::int64_t, std::int64_t>;

std::map<std::string, Shape> shapes_of(const std::vector<ModelPart>& parts) {
  std::map<std::string, Shape> shapes;
  for (const ModelPart& part : parts) shapes[std::string(part.name)] = {part.out, part.in};
  return shapes;
}

Scenario read(const std::string& model, const std::string& plan, std::int32_t gpus) {
  const Result<Scenario> scenario = parse_scenario(
      R"({"model": )" + model + R"(, "cluster": "dgx-h100", "gpus": )" + std::to_string(gpus) +
          R"(, "plan": {"micro_batch": 1, "global_batch": 64, "sequence_length": 1024)" + plan +
          "}}",
      "test", 1, {});
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  return scenario.value();
}

// DeepSeek-V3 (arXiv 2412.19437, section 4.2): h 7168, 128 heads of 128 + 64 and 128, compressed to
// 1536 and 512; 256 experts of width 2048, one shared.
TEST(Parts, OfDeepSeekV3AreThoseOfItsPaper) {
  const Transformer model = read(R"("deepseek-v3")", R"(, "expert_parallel": 64)", 64).model;
  const auto dense = shapes_of(layer_parts(model, 0));
  EXPECT_EQ(dense.at("q_a.weight"), Shape(1536, 7168));
  EXPECT_EQ(dense.at("q_b.weight"), Shape(24576, 1536));
  EXPECT_EQ(dense.at("kv_a.weight"), Shape(576, 7168));
  EXPECT_EQ(dense.at("kv_b.weight"), Shape(32768, 512));
  EXPECT_EQ(dense.at("projection.weight"), Shape(7168, 16384));
  EXPECT_EQ(dense.at("up.weight"), Shape(2 * 18432, 7168));
  const auto experts = shapes_of(layer_parts(model, 3));
  EXPECT_EQ(experts.at("router.weight"), Shape(256, 7168));
  EXPECT_EQ(experts.at("experts.up.weight"), Shape(2 * 2048, 7168));
  EXPECT_EQ(experts.at("experts.down.weight"), Shape(7168, 2048));
  EXPECT_EQ(experts.at("shared_experts.down.weight"), Shape(7168, 2048));
  EXPECT_FALSE(experts.contains("up.weight"));
}

// Blocks are the whole, and matrices that stand in one are equal.
TEST(Parts, BlocksMakeTheirPart) {
  for (const char* name : {"gpt2-124m", "llama3-8b", "mixtral-8x7b", "deepseek-v3", "gpt3-175b"}) {
    const Transformer model = read('"' + std::string(name) + '"', "", 8).model;
    for (const std::int64_t layer : {std::int64_t{0}, model.layers - 1}) {
      for (const ModelPart& part : layer_parts(model, layer)) {
        EXPECT_EQ(part.blocks[0] + part.blocks[1] + part.blocks[2], part.out) << part.name;
        EXPECT_EQ(part.out % part.matrices, 0) << part.name;
      }
    }
  }
}

// Of every part that ranks divide, t of them have the whole; of the others each has it. Padding of
// the vocabulary comes on top, and key/value heads that several ranks hold.
TEST(Parts, RanksTogetherHaveTheWhole) {
  for (const char* name : {"llama3-8b", "mixtral-8x7b", "deepseek-v3"}) {
    for (const std::int32_t t : {1, 2, 8}) {
      const Scenario scenario =
          read('"' + std::string(name) + '"',
               R"(, "runtime": "rehearse", "tensor_parallel": )" + std::to_string(t), 8);
      const Layout layout(scenario.model, scenario.plan);
      const std::int64_t etp = scenario.plan.expert_tensor_parallel;
      const std::int64_t layer = scenario.model.layers - 1;
      const auto parts = segment_parts(scenario.model, SegmentKind::Layer, layer);
      const auto tensors = segment_parameters(layout, SegmentKind::Layer, layer);
      ASSERT_EQ(tensors.size(), parts.size());
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const std::int64_t all = parts[i].expert ? etp * scenario.plan.expert_parallel : t;
        const bool cut = parts[i].cut != Cut::None || parts[i].expert;
        EXPECT_EQ(tensors[i].elements * (cut ? all : 1), parts[i].elements())
            << name << " " << parts[i].name << " over " << t;
      }
    }
  }
}

// A framework has the matrices of all its experts in one tensor: the same elements, fewer tensors.
TEST(Parts, AFrameworkJoinsTheMatricesOfExperts) {
  const auto elements = [](const std::string& runtime) {
    const Scenario scenario =
        read(R"("mixtral-8x7b")", R"(, "expert_parallel": 8, "runtime": ")" + runtime + '"', 8);
    std::int64_t sum = 0, joined = 0;
    for (const ParameterTensor& tensor :
         segment_parameters({scenario.model, scenario.plan}, SegmentKind::Layer, 0)) {
      sum += tensor.elements;
      joined += tensor.parts - 1;
    }
    return std::pair{sum, joined};
  };
  EXPECT_EQ(elements("rehearse").first, elements("megatron").first);
  EXPECT_EQ(elements("rehearse").second, 0);
  EXPECT_EQ(elements("megatron").second, 1);
}

}  // namespace
}  // namespace rehearse
