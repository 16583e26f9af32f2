// SPDX-License-Identifier: Apache-2.0
// cuDNN's attention against the CPU's: on a GPU by the library, else by its double. Memory::run
// wants the same bits from all passes.
#include "exec/cpu/kernels/table.h"
#include "exec/cuda/cudnn/attention.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

class CudnnAttentionTest : public KernelTest {
 protected:
  void SetUp() override {
    KernelTest::SetUp();
    if (IsSkipped()) return;
    std::string why;
    engine_ = CudnnAttention::open(&why);
    if (engine_ != nullptr) return;
    std::printf("SKIPPED: no cuDNN: %s\n", why.c_str());
    GTEST_SKIP() << why;
  }

  void check(const AttentionShape& s) {
    SCOPED_TRACE(std::to_string(s.heads) + " heads, " + std::to_string(s.kv_heads) +
                 " of keys, of " + std::to_string(s.head_dim) + " and " +
                 std::to_string(s.values()) + " columns, sequence " + std::to_string(s.sequence) +
                 ", window " + std::to_string(s.form.window));
    ASSERT_TRUE(CudnnAttention::takes(type(), s));
    const std::int64_t wide = s.heads * s.values();
    const std::vector<float> qkv = rounded(random_values(s.tokens * s.columns(), 1), type()),
                             d_o = rounded(random_values(s.tokens * wide, 2), type());
    std::vector<float> o(d_o.size()), lse(static_cast<std::size_t>(s.heads * s.tokens)),
        dqkv(qkv.size()), delta(lse.size());
    kernels().attention(s, qkv.data(), o.data(), lse.data());
    o = rounded(o, type());
    kernels().attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                                 delta.data());

    const double tolerance = bound(1e-5, 1e-2);
    if (const Result<std::int64_t> bytes = engine_->prepare(false, type(), s); !bytes) {
      std::printf("forward is refused: %s\n", bytes.error().message.c_str());
    } else {
      Memory m(type());
      Array &in = m.values(qkv), &out = m.empty(s.tokens * wide);
      Array &sums = m.empty_floats(s.heads * s.tokens), &beside = m.scratch(bytes.value());
      m.run([&] {
        return engine_->forward(nullptr, type(), s, in.at(), out.at(), sums.at<float>(),
                                beside.at());
      });
      expect_close(out.values(), o, tolerance, "o");
      expect_close(sums.values(), lse, 1e-5, "lse");
    }
    if (const Result<std::int64_t> bytes = engine_->prepare(true, type(), s); !bytes) {
      std::printf("backward is refused: %s\n", bytes.error().message.c_str());
    } else {
      Memory m(type());
      Array &in = m.values(qkv), &out = m.values(o), &d_out = m.values(d_o);
      Array &sums = m.floats(lse), &gradient = m.empty(s.tokens * s.columns());
      Array &room = m.empty_floats(s.heads * s.tokens), &beside = m.scratch(bytes.value());
      m.run([&] {
        return engine_->backward(nullptr, type(), s, d_out.at(), in.at(), out.at(),
                                 sums.at<float>(), gradient.at(), room.at<float>(), beside.at());
      });
      expect_close(gradient.values(), dqkv, tolerance, "dqkv");
    }
    EXPECT_EQ(engine_->why(), "");
  }
  std::unique_ptr<CudnnAttention> engine_;
};

TEST_P(CudnnAttentionTest, HeadsOf64WithGroupedKeysOverSeveralTiles) {
  check({.tokens = 200, .sequence = 200, .heads = 2, .kv_heads = 1, .head_dim = 64});
}
TEST_P(CudnnAttentionTest, HeadsOf128InSeveralSamples) {
  check({.tokens = 2 * 128, .sequence = 128, .heads = 2, .kv_heads = 2, .head_dim = 128});
}
TEST_P(CudnnAttentionTest, HeadsOfOtherWidths) {
  check({.tokens = 70, .sequence = 70, .heads = 3, .kv_heads = 1, .head_dim = 24});
  check({.tokens = 70, .sequence = 70, .heads = 1, .kv_heads = 1, .head_dim = 80});
  check({.tokens = 128, .sequence = 128, .heads = 2, .kv_heads = 1, .head_dim = 256});
  check({.tokens = 128,
         .sequence = 128,
         .heads = 2,
         .kv_heads = 2,
         .head_dim = 192,
         .value_dim = 128});
}
TEST_P(CudnnAttentionTest, WindowsAndAScaleOfItsOwn) {
  AttentionShape s{.tokens = 2 * 100, .sequence = 100, .heads = 4, .kv_heads = 2, .head_dim = 32};
  s.form.scale = 0.3;
  for (const std::int64_t window : {1, 5, 64}) {
    s.form.window = window;
    check(s);
  }
}
REHEARSE_TYPES(CudnnAttentionTest, Type::BFloat16, Type::Float16);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
