// SPDX-License-Identifier: Apache-2.0
// Every layout trains like one rank: the same losses, gradient norms and weights after four steps.
//
// Bitwise where the layout adds in the same order: pipelines, recomputation. Within 1e-5, relative,
// where sums are split (tp, dp, ZeRO) or a second replica takes half of the micro-batches.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>

#include "exec/cpu/kernels/instruction_set.h"
#include "exec/step/exchanges/quantized_gather.h"
#include "tests/exec/step/layouts.h"
#include "tests/schedules/order/scattered_recompute.h"

namespace rehearse::exec {
namespace {

// One rank, micro-batches one after another.
const Trained& reference(Family family) {
  static std::map<Family, Trained> known;
  const auto [at, fresh] = known.try_emplace(family);
  if (fresh) at->second = train_layout(family, {});
  return at->second;
}

class Matrix : public testing::TestWithParam<Cell> {};

TEST_P(Matrix, TrainsLikeOneRank) {
  const Cell& cell = GetParam();
  const Trained& one = reference(cell.family);
  ASSERT_EQ(one.error, "");
  const Trained many = train_layout(cell.family, cell.plan);
  ASSERT_EQ(many.error, "");
  const Distance far = distance(many, one);
  if (std::getenv("REHEARSE_DISTANCES") != nullptr) {
    std::printf("%-26s loss %.1e norm %.1e weight %.1e %s%s\n", cell.name, far.loss, far.norm,
                far.weight, far.tensor.c_str(), far.bitwise ? " bitwise" : "");
  }
  if (cell.equal == Bitwise) {
    EXPECT_TRUE(far.bitwise) << "loss " << far.loss << ", " << far.tensor << ' ' << far.weight;
  }
  EXPECT_LE(far.loss, 1e-5);
  EXPECT_LE(far.norm, 1e-5);
  EXPECT_LE(far.weight, 1e-5) << far.tensor;
  // Over the addresses of ops as much is alive as the plan says.
  EXPECT_EQ(many.planned, many.counted);
  for (std::size_t row = 0; row < many.arena.size(); ++row)
    EXPECT_LE(many.planned[row], many.arena[row]);
}

TEST_P(Matrix, RunsAgainBitForBitWithTwoWorkers) {
  const Cell& cell = GetParam();
  const Trained alone = train_layout(cell.family, cell.plan, 1);
  ASSERT_EQ(alone.error, "");
  const Trained two = train_layout(cell.family, cell.plan, 2);
  ASSERT_EQ(two.error, "");
  EXPECT_TRUE(distance(two, alone).bitwise);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Matrix, testing::ValuesIn(kLayouts),
                         [](const auto& cell) { return std::string(cell.param.name); });

// Every row of a product is summed as before, whatever piece it is computed in, and every element
// of a collective in the order of the ranks. Eigen's products, the generic ones, sum a row by how
// many there are.
TEST(Chunks, GiveTheBitsOfWholeProducts) {
  const bool own_products = instruction_set() != "generic";
  int tried = 0;
  for (const Cell& cell : kLayouts) {
    std::vector<std::string> whole = cell.plan;
    std::erase_if(whole, [](const std::string& key) { return key.starts_with("overlap.tensor"); });
    if (whole.size() == cell.plan.size()) continue;
    const Trained pieces = train_layout(cell.family, cell.plan);
    const Trained products = train_layout(cell.family, whole);
    ASSERT_EQ(pieces.error, "") << cell.name;
    ASSERT_EQ(products.error, "") << cell.name;
    const Distance far = distance(pieces, products);
    EXPECT_TRUE(far.bitwise || !own_products)
        << cell.name << ": " << far.tensor << ' ' << far.weight;
    EXPECT_LE(far.weight, 1e-5) << cell.name << ": " << far.tensor;
    ++tried;
  }
  EXPECT_GE(tried, 12);
}

// The same kernels on the same numbers: bit for bit, in every layout of the matrix that computes
// anything again, wherever the order has the R, with more of them alive than planners would have.
TEST(PlacedRecomputation, IsThatInsideTheBackwardBitForBit) {
  int tried = 0;
  for (const Cell& cell : kLayouts) {
    const bool again = std::ranges::any_of(cell.plan, [](const std::string& key) {
      return key == "recompute=full" || key == "recompute=selective";
    });
    if (!again) continue;
    const auto scattered = [&](const Schedule& order) {
      return with_scattered_recompute(order, static_cast<std::uint64_t>(tried), 70);
    };
    const Trained inside = train_layout(cell.family, cell.plan, 1, 2);
    const Trained apart = train_layout(model_text(cell.family), cell.plan, 1, 2, 0, scattered);
    ASSERT_EQ(inside.error, "") << cell.name;
    ASSERT_EQ(apart.error, "") << cell.name;
    const Distance far = distance(apart, inside);
    EXPECT_TRUE(far.bitwise) << cell.name << ": " << far.tensor << ' ' << far.weight;
    EXPECT_EQ(apart.planned, apart.counted) << cell.name;
    ++tried;
  }
  EXPECT_GE(tried, 25);
}

// Panels that are as many as neither rows nor columns: six of them on 2 x 3 and 3 x 2 ranks, of
// which every one of a row has two, and of a column three.
TEST(Grid, OfLcmPanelsTrainsLikeOneRank) {
  const std::string model = R"({"model_type": "gpt2", "resid_pdrop": 0, "num_hidden_layers": 2,
      "hidden_size": 36, "num_attention_heads": 6, "vocab_size": 61,
      "max_position_embeddings": 18})";
  const std::vector<std::string> keys{"micro_batch=6", "global_batch=12"};
  const Trained one = train_layout(model, keys);
  ASSERT_EQ(one.error, "");
  for (const char* grid : {"[2,3]", "[3,2]", "[3,3]", "[6,1]"}) {
    std::vector<std::string> all = keys;
    all.push_back("tensor_parallel_2d=" + std::string(grid));
    const Trained many = train_layout(model, all);
    ASSERT_EQ(many.error, "") << grid;
    const Distance far = distance(many, one);
    EXPECT_LE(far.loss, 1e-5) << grid;
    EXPECT_LE(far.norm, 1e-5) << grid;
    EXPECT_LE(far.weight, 1e-5) << grid << ' ' << far.tensor;
    EXPECT_EQ(many.planned, many.counted) << grid;
  }
}

// The loss is of the gathered batch, in the chunks of one rank that has all of it.
TEST(ThroughOneGpu, HasTheLossOfOneRankBitForBit) {
  for (const std::int32_t replicas : {2, 4}) {
    const std::string many = std::to_string(replicas);
    const Trained one = train_layout(Gpt2, {"micro_batch=" + many});
    const Trained all =
        train_layout(Gpt2, {"data_parallel=" + many, "data_parallel_algorithm=parameter_server"});
    ASSERT_EQ(one.error, "");
    ASSERT_EQ(all.error, "");
    EXPECT_EQ(all.losses.front(), one.losses.front()) << many;
    EXPECT_LE(distance(all, one).weight, 1e-5) << many;  // gradients: other orders of sums
  }
}

// 8 bit with a scale for every block of 256: half a step of a 127th of its largest value away at
// most, and zeros exactly. What is no number is seen.
TEST(QuantizedGathers, AreHalfAStepAwayAtMost) {
  std::vector<float> values(600);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto at = static_cast<float>(i);
    values[i] = i < 256 ? std::sin(at) : i < 512 ? 0.0F : 1e-3F * std::cos(3 * at);
  }
  const std::vector<std::int64_t> ends{256, 512, 600};
  std::vector<std::byte> packed(600 + 4 * ends.size());
  quantize(ends, values, packed.data());
  std::vector<float> back(values.size());
  dequantize(ends, packed.data(), back);
  const float step[] = {1.0F / 127, 0, 1e-3F / 127};
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_LE(std::abs(back[i] - values[i]), 0.501F * step[i < 256 ? 0 : i < 512 ? 1 : 2]) << i;
  }
  values[3] = std::numeric_limits<float>::infinity();
  quantize(ends, values, packed.data());
  dequantize(ends, packed.data(), back);
  EXPECT_TRUE(std::isnan(back[3]));
  EXPECT_FALSE(std::isnan(back[256]));
}

// Blocks begin with tensors and shards, so whatever else differs the bits are those of the shards.
TEST(QuantizedGathers, AreBitwiseTheSameWhereShardsAre) {
  const std::vector<std::string> keys{"data_parallel=2", "zero_stage=3", "quantized_gather=8"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> all = keys;
    all.insert(all.end(), more.begin(), more.end());
    return train_layout(Gpt2Untied, all);
  };
  const Trained one = with({});
  ASSERT_EQ(one.error, "");
  for (const std::vector<std::string>& more : {std::vector<std::string>{"prefetch=0"},
                                               {"recompute=full"},
                                               {"pipeline_parallel=2", "schedule=1f1b"}}) {
    const Trained other = with(more);
    ASSERT_EQ(other.error, "");
    EXPECT_TRUE(distance(other, one).bitwise) << more.front();
    EXPECT_EQ(other.planned, other.counted);
  }
}

// Values of a block are off by 0.7 % of their root mean square (gaussian values, blocks of 256):
// over four steps losses follow within a thousandth, norms within a hundredth, and tensors within a
// twentieth: furthest are biases, which begin at zero and are nothing but updates. Second copies do
// not add to it.
TEST(QuantizedGathers, TrainNearlyAsWholeOnes) {
  const Trained whole = train_layout(Gpt2, {"data_parallel=4", "zero_stage=3"});
  for (const std::vector<std::string>& keys :
       {std::vector<std::string>{"data_parallel=4", "zero_stage=3", "quantized_gather=8"},
        {"data_parallel=4", "zero_stage=3", "quantized_gather=8", "secondary_shard_group=2"}}) {
    const Trained eight = train_layout(Gpt2, keys);
    ASSERT_EQ(eight.error, "");
    const Distance far = distance(eight, whole);
    std::printf("8-bit gathers: loss %.1e norm %.1e weight %.1e %s\n", far.loss, far.norm,
                far.weight, far.tensor.c_str());
    EXPECT_GT(far.weight, 1e-5);
    EXPECT_LE(far.loss, 1e-3);
    EXPECT_LE(far.norm, 0.01);
    EXPECT_LE(far.weight, 0.05) << far.tensor;
  }
}

// An order that no generator makes: sliced 1F1B with a forward and a backward of different
// micro-batches paired wherever both are there.
std::string paired_slices(std::int32_t positions, std::int32_t microbatches, std::int32_t slices) {
  const auto op = [&](std::int32_t r, char kind, std::int32_t unit) {
    const std::int32_t slice = kind == 'F' ? unit % slices : slices - 1 - unit % slices;
    return std::to_string(r) + kind + std::to_string(unit / slices) + '.' + std::to_string(slice);
  };
  std::string orders;
  for (std::int32_t r = 0; r < positions; ++r) {
    const std::int32_t warmup = slices + positions - 1 - r, count = microbatches * slices;
    std::string row;
    for (std::int32_t i = 0; i < warmup; ++i) row += '"' + op(r, 'F', i) + "\",";
    for (std::int32_t i = 0; i < count; ++i) {
      const std::string backward = op(r, 'B', i);
      row += warmup + i < count
                 ? "\"(" + op(r, 'F', warmup + i) + ';' + backward + ")OVERLAP_F_B\","
                 : '"' + backward + "\",";
    }
    row.back() = ']';
    orders += (r > 0 ? ",[" : "[") + row;
  }
  return "{\"orders\":[" + orders + "]}";
}

// Slices are summed in one order, whatever pipeline they go through.
TEST(Slices, AreBitwiseTheSameInEveryPipeline) {
  const std::string file = testing::TempDir() + "paired_slices.json";
  std::ofstream(file) << paired_slices(2, 8, 2);
  const std::vector<std::string> pipelines[] = {
      {"schedule=seq_1f1b", "pipeline_parallel=2"},
      {"schedule=seq_1f1b", "pipeline_parallel=4", "recompute=full"},
      {"schedule=seq_zb_h1"},
      {"schedule=seq_zb_h1", "pipeline_parallel=2", "recompute=selective"},
      {"schedule=seq_zb_h1", "pipeline_parallel=4", "recompute=full"},
      {"schedule=file:" + file, "pipeline_parallel=2", "stage_layers=[4,4]"},
  };
  for (const bool ring : {false, true}) {
    const auto with = [&](std::vector<std::string> keys) {
      keys.emplace_back("sequence_slices=2");
      if (ring) keys.emplace_back("context_parallel=2");
      return keys;
    };
    const Trained one = train_layout(Llama, with({"schedule=seq_1f1b"}));
    ASSERT_EQ(one.error, "");
    for (const std::vector<std::string>& pipeline : pipelines) {
      const Trained many = train_layout(Llama, with(pipeline));
      ASSERT_EQ(many.error, "") << pipeline.front();
      EXPECT_TRUE(distance(many, one).bitwise) << pipeline.front() << (ring ? ", ring" : "");
      EXPECT_EQ(many.planned, many.counted) << pipeline.front();
    }
  }
  std::remove(file.c_str());
}

// That the comparison can fail: another seed's weights are far away.
TEST(Reference, LearnsAndDiffersFromOtherModels) {
  const Trained& one = reference(Family::Gpt2);
  ASSERT_EQ(one.error, "");
  EXPECT_NEAR(one.losses.front(), std::log(61.0), 0.05);  // uniform at the start: ln V
  EXPECT_LT(one.losses.back(), one.losses.front());
  const Trained slower = train_layout(Family::Gpt2, {"micro_batch=2"});
  ASSERT_EQ(slower.error, "");
  const Distance other = distance(slower, one);
  EXPECT_FALSE(other.bitwise);  // sums of other groups of samples
  EXPECT_LE(other.loss, 1e-5);
}

}  // namespace
}  // namespace rehearse::exec
