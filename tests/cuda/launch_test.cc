// SPDX-License-Identifier: Apache-2.0
// What the launch functions ask of a GPU for the largest models: within its limits, and enough
// threads. Nothing runs; the addresses are only looked at for their alignment.
#include <gtest/gtest.h>

#include <array>

#include "exec/cuda/calls/kernels.h"
#include "tests/cuda/emulation.h"

namespace rehearse::exec::cuda {
namespace {

void* const kAligned = reinterpret_cast<void*>(std::uintptr_t{1} << 20);
void* const kOdd = reinterpret_cast<void*>((std::uintptr_t{1} << 20) + 4);
template <class T>
T* at(void* pointer) {
  return static_cast<T*>(pointer);
}

class LaunchTest : public ::testing::Test {
 protected:
  void SetUp() override { emulation::only_note(true); }
  void TearDown() override {
    emulation::take_launches();
    emulation::only_note(false);
  }
  // Of the launches since the last call: threads of all blocks. Limits are checked by the
  // emulation.
  static std::int64_t threads() {
    std::int64_t sum = 0;
    for (const emulation::Launch& launch : emulation::take_launches()) {
      sum += std::int64_t{launch.grid.x} * launch.grid.y * launch.grid.z * launch.threads;
    }
    return sum;
  }
  static emulation::Launch last() { return emulation::take_launches().back(); }
};

TEST_F(LaunchTest, APointwiseKernelHasAThreadPerSixteenBytes) {
  const std::int64_t count = 65536LL * 53248;  // more than 2^31 elements
  ASSERT_EQ(
      activation(nullptr, Type::BFloat16, ActivationKind::GeluTanh, count, kAligned, kAligned), 0);
  EXPECT_EQ(threads(), count / 8);
  ASSERT_EQ(activation(nullptr, Type::Float32, ActivationKind::GeluTanh, count, kAligned, kAligned),
            0);
  EXPECT_EQ(threads(), count / 4);
  ASSERT_EQ(activation(nullptr, Type::BFloat16, ActivationKind::GeluTanh, count, kAligned, kOdd),
            0);
  EXPECT_EQ(threads(), count);  // one by one where an array is not aligned
}

TEST_F(LaunchTest, ANormHasAWarpPerRow) {
  ASSERT_EQ(layer_norm(nullptr, Type::BFloat16, 131072, 18432, kAligned, kAligned, kAligned, 1e-5,
                       kAligned, at<float>(kAligned)),
            0);
  EXPECT_EQ(threads(), 131072 * 32);
}

TEST_F(LaunchTest, ColumnSumsFillAGpuWhateverTheShapeAndTheirScratchIsModest) {
  for (const std::int64_t columns : {64, 768, 1600, 12288, 53248}) {
    for (const std::int64_t rows : {4096, 65536}) {
      ASSERT_EQ(add_column_sums(nullptr, Type::BFloat16, rows, columns, kAligned,
                                at<float>(kAligned), kAligned),
                0);
      const emulation::Launch first = emulation::take_launches().front();
      EXPECT_GE(first.grid.x * first.grid.y, 128U) << columns;  // H100: 132 processors
      EXPECT_LE(column_sums_scratch(rows, columns), 1 << 20) << columns;
    }
  }
}

TEST_F(LaunchTest, AttentionStaysWithinSharedMemoryForEveryHead) {
  using enum AttentionEngine;
  for (const auto& [type, engine] :
       {std::pair{Type::Float32, MmaSync}, {Type::BFloat16, MmaSync}, {Type::BFloat16, Wgmma}}) {
    for (const auto& [head_dim, values] :
         {std::pair{16, 16}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256}}) {
      const AttentionShape shape{.tokens = 2 * 131072,
                                 .sequence = 131072,
                                 .heads = 64,
                                 .kv_heads = 8,
                                 .head_dim = head_dim,
                                 .value_dim = values};
      ASSERT_EQ(attention(nullptr, type, shape, kAligned, kAligned, at<float>(kAligned), engine),
                0);
      const std::size_t limit = (engine == Wgmma ? 227 : 163) * 1024;  // of sm_90 and sm_80
      const emulation::Launch forward = last();
      EXPECT_GE(forward.grid.x * 128, 131072U);  // at most 128 queries each
      EXPECT_LE(forward.shared, limit);
      ASSERT_EQ(
          attention_backward(nullptr, type, shape, kAligned, kAligned, kAligned,
                             at<float>(kAligned), kAligned, at<float>(kAligned), kAligned, engine),
          0);
      const auto launches = emulation::take_launches();
      ASSERT_EQ(launches.size(), 3U);  // delta; dK and dV; dQ
      for (const emulation::Launch& launch : launches) EXPECT_LE(launch.shared, limit);
      // Two blocks of dQ on an A100's processor: 164 KB, of which each takes one more.
      if (type == Type::BFloat16 && engine == MmaSync && head_dim <= 128) {
        EXPECT_LE(2 * (launches[2].shared + 1024), std::size_t{164} * 1024) << head_dim;
      }
      EXPECT_EQ(launches[1].grid.y, 8U);
      EXPECT_EQ(launches[2].grid.y, 64U);
      EXPECT_EQ(launches[2].grid.z, 2U);
    }
  }
}

// Llama-3 70B over eight ranks: one head of keys, 128 tiles of them.
TEST_F(LaunchTest, TilesOfKeysAreSplitWhereTheyAreFew) {
  emulation::set_processors(132);
  AttentionShape s{.tokens = 8192, .sequence = 8192, .heads = 8, .kv_heads = 1, .head_dim = 128};
  const auto backward = [&] {
    EXPECT_EQ(attention_backward(nullptr, Type::BFloat16, s, kAligned, kAligned, kAligned,
                                 at<float>(kAligned), kAligned, at<float>(kAligned), kAligned),
              0);
    return emulation::take_launches();
  };
  const auto split = backward();
  ASSERT_EQ(split.size(), 4U);  // delta; shares of dK and dV; their sum; dQ
  EXPECT_EQ(split[1].grid.x * split[1].grid.y, 128U * 4);
  EXPECT_EQ(attention_backward_scratch(Type::BFloat16, s), 4 * 8192 * 256 * 4);
  s.heads = s.kv_heads = 64;
  EXPECT_EQ(attention_backward_scratch(Type::BFloat16, s), 0);
  EXPECT_EQ(backward().size(), 3U);
  emulation::set_processors(2);
}

TEST_F(LaunchTest, TensorCoresTakeKeysUpTo192AndValuesUpTo128ThatDivideBy8) {
  const auto threads_of_block = [](std::int64_t head_dim, Type type, void* qkv,
                                   std::int64_t values = 0) {
    const AttentionShape shape{.tokens = 64,
                               .sequence = 64,
                               .heads = 1,
                               .kv_heads = 1,
                               .head_dim = head_dim,
                               .value_dim = values};
    EXPECT_EQ(attention(nullptr, type, shape, qkv, kAligned, at<float>(kAligned)), 0);
    return last().threads;
  };
  constexpr int kFast = 128, kExact = 256;
  EXPECT_EQ(threads_of_block(64, Type::BFloat16, kAligned), kFast);
  EXPECT_EQ(threads_of_block(128, Type::BFloat16, kAligned), kFast);
  EXPECT_EQ(threads_of_block(72, Type::BFloat16, kAligned), kFast);
  EXPECT_EQ(threads_of_block(68, Type::BFloat16, kAligned), kExact);
  EXPECT_EQ(threads_of_block(192, Type::BFloat16, kAligned), kExact);
  EXPECT_EQ(threads_of_block(192, Type::BFloat16, kAligned, 128), kFast);
  EXPECT_EQ(threads_of_block(64, Type::BFloat16, kAligned, 128), kFast);
  EXPECT_EQ(threads_of_block(64, Type::BFloat16, kAligned, 136), kExact);
  EXPECT_EQ(threads_of_block(64, Type::BFloat16, kAligned, 20), kExact);
  EXPECT_EQ(threads_of_block(200, Type::BFloat16, kAligned, 128), kExact);
  EXPECT_EQ(threads_of_block(64, Type::Float32, kAligned), kExact);
  EXPECT_EQ(threads_of_block(64, Type::BFloat16, kOdd), kExact);
}

TEST_F(LaunchTest, VocabulariesAndTokensOfTheLargestModels) {
  const std::int64_t tokens = 131072, h = 16384, columns = 256000;
  const VocabularyShape all{.columns = columns, .valid = columns};
  const auto* ids = at<std::int32_t>(kAligned);
  auto* floats = at<float>(kAligned);
  EXPECT_EQ(embed(nullptr, Type::BFloat16, tokens, h, ids, kAligned, all, kAligned), 0);
  EXPECT_EQ(threads(), tokens * h / 8);
  // Three digits; what is read does not grow with the square of the tokens.
  EXPECT_EQ(sort_tokens(nullptr, tokens, ids, all, at<std::int32_t>(kAligned), kAligned), 0);
  EXPECT_EQ(threads(), 3 * 2 * tokens / 4);
  EXPECT_LE(sort_tokens_scratch(tokens), 4 * tokens + (1 << 17));
  EXPECT_EQ(embed_backward(nullptr, Type::BFloat16, tokens, h, ids, kAligned, all, ids, floats), 0);
  EXPECT_EQ(
      cross_entropy(nullptr, Type::BFloat16, tokens, all, ids, 1, floats, floats, kAligned, floats),
      0);
  const AttentionShape rotated{
      .tokens = tokens, .sequence = 131072, .heads = 64, .kv_heads = 8, .head_dim = 128};
  const std::array<double, 64> frequencies{};
  const RotaryShape rotary{.inverse_frequency = frequencies.data(), .rotary_dim = 128};
  EXPECT_EQ(rope(nullptr, Type::BFloat16, rotated, rotary, false, kAligned), 0);
  EXPECT_EQ(emulation::take_launches().size(), 4U);
}

TEST_F(LaunchTest, NothingToDoLaunchesNoBlock) {
  EXPECT_EQ(activation(nullptr, Type::BFloat16, ActivationKind::GeluTanh, 0, kAligned, kAligned),
            0);
  EXPECT_EQ(threads(), 0);
}

}  // namespace
}  // namespace rehearse::exec::cuda
