// SPDX-License-Identifier: Apache-2.0
// Attention on the GPU (or in the emulation) against the CPU.
#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

struct Reference {
  std::vector<float> qkv, d_o, o, lse, dqkv;
};

// Inputs rounded to `type`; the reference's own output feeds its backward, rounded likewise.
Reference reference(const AttentionShape& s, Type type) {
  const std::int64_t wide = s.heads * s.values();
  Reference r;
  r.qkv = rounded(random_values(s.tokens * s.columns(), 1), type);
  r.d_o = rounded(random_values(s.tokens * wide, 2), type);
  r.o.resize(static_cast<std::size_t>(s.tokens * wide));
  r.lse.resize(static_cast<std::size_t>(s.heads * s.tokens));
  r.dqkv.resize(r.qkv.size());
  std::vector<float> delta(r.lse.size());
  kernels().attention(s, r.qkv.data(), r.o.data(), r.lse.data());
  r.o = rounded(r.o, type);
  kernels().attention_backward(s, r.d_o.data(), r.qkv.data(), r.o.data(), r.lse.data(),
                               r.dqkv.data(), delta.data());
  return r;
}

class AttentionTest : public KernelTest {
 protected:
  // P and dS are rounded to the type before they are multiplied, and the result once more.
  void check(const AttentionShape& s, std::size_t shift = 0) {
    for (const AttentionEngine engine : engines()) check(s, shift, engine);
  }
  static AttentionShape latent(AttentionShape s, std::int64_t head_dim, std::int64_t values) {
    s.head_dim = head_dim;
    s.value_dim = values;
    return s;
  }
  void check(const AttentionShape& s, std::size_t shift, AttentionEngine engine) {
    SCOPED_TRACE(name_of(engine) + ", sequence " + std::to_string(s.sequence) + ", head_dim " +
                 std::to_string(s.head_dim) + ", values " + std::to_string(s.values()));
    const Reference r = reference(s, type());
    const double tolerance = bound(1e-5, 1e-2);
    Memory m(type());
    Array &qkv = m.values(r.qkv, shift), &o = m.empty(s.tokens * s.heads * s.values());
    Array& lse = m.empty_floats(s.heads * s.tokens);
    m.run([&] { return attention(nullptr, type(), s, qkv.at(), o.at(), lse.at<float>(), engine); });
    expect_close(o.values(), r.o, tolerance, "o");
    expect_close(lse.values(), r.lse, 1e-5, "lse");

    Memory b(type());
    Array &qkv_b = b.values(r.qkv, shift), &o_b = b.values(r.o), &d_o = b.values(r.d_o);
    Array &lse_b = b.floats(r.lse), &dqkv = b.empty(s.tokens * s.columns());
    Array &delta = b.empty_floats(s.heads * s.tokens),
          &scratch = b.scratch(attention_backward_scratch(type(), s));
    b.run([&] {
      return attention_backward(nullptr, type(), s, d_o.at(), qkv_b.at(), o_b.at(),
                                lse_b.at<float>(), dqkv.at(), delta.at<float>(), scratch.at(),
                                engine);
    });
    expect_close(dqkv.values(), r.dqkv, tolerance, "dqkv");
  }
};

TEST_P(AttentionTest, HeadsOf64WithGroupedKeysOverSeveralTiles) {
  check({.tokens = 200, .sequence = 200, .heads = 2, .kv_heads = 1, .head_dim = 64});
}
TEST_P(AttentionTest, HeadsOf128) {
  check({.tokens = 270, .sequence = 270, .heads = 1, .kv_heads = 1, .head_dim = 128});
}
TEST_P(AttentionTest, SeveralSamplesAndASequenceThatNoTileDivides) {
  check({.tokens = 2 * 37, .sequence = 37, .heads = 3, .kv_heads = 3, .head_dim = 64});
}
TEST_P(AttentionTest, NarrowHeadsArePadded) {
  check({.tokens = 70, .sequence = 70, .heads = 2, .kv_heads = 2, .head_dim = 24});
  check({.tokens = 40, .sequence = 40, .heads = 1, .kv_heads = 1, .head_dim = 80});
}
// DeepSeek-V2's heads: keys of 128 + 64 columns, values of 128.
TEST_P(AttentionTest, LatentHeadsOverSeveralTiles) {
  check(latent({.tokens = 200, .sequence = 200, .heads = 2, .kv_heads = 2}, 192, 128));
  check(latent({.tokens = 2 * 70, .sequence = 70, .heads = 2, .kv_heads = 1}, 192, 128));
}
TEST_P(AttentionTest, ValuesOfAnotherWidthThanKeys) {
  const AttentionShape s{.tokens = 70, .sequence = 70, .heads = 2, .kv_heads = 1};
  check(latent(s, 64, 32));
  check(latent(s, 24, 64));
  check(latent(s, 40, 72));  // padded to 128
  check(latent(s, 128, 56));
  check(latent(s, 136, 16));  // padded to 192 and 128
}
TEST_P(AttentionTest, ValuesThatNoTensorCoreKernelTakes) {
  const AttentionShape s{.tokens = 40, .sequence = 40, .heads = 2, .kv_heads = 1};
  check(latent(s, 12, 8));
  check(latent(s, 16, 200));
  check(latent(s, 200, 24));
  check(latent(s, 192, 128), 1);  // not aligned
}
TEST_P(AttentionTest, HeadsThatNoTensorCoreKernelTakes) {
  check({.tokens = 40, .sequence = 40, .heads = 2, .kv_heads = 1, .head_dim = 5});
  check({.tokens = 40, .sequence = 40, .heads = 1, .kv_heads = 1, .head_dim = 200});
}
TEST_P(AttentionTest, ArraysThatAreNotAligned) {
  check({.tokens = 40, .sequence = 40, .heads = 2, .kv_heads = 1, .head_dim = 64}, 1);
}
TEST_P(AttentionTest, OneToken) {
  check({.tokens = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_dim = 64});
}
TEST_P(AttentionTest, AShapeThatNoKernelTakesIsRefused) {
  const AttentionShape s{.tokens = 4, .sequence = 4, .heads = 1, .kv_heads = 1};
  for (const AttentionShape& wide : {latent(s, 264, 264), latent(s, 64, 264)}) {
    EXPECT_EQ(attention(nullptr, type(), wide, nullptr, nullptr, nullptr), 1);
  }
}
REHEARSE_WIDER_TYPES(AttentionTest);

class AttentionInFp16 : public AttentionTest {};
TEST_P(AttentionInFp16, OfEveryWidth) {
  check({.tokens = 75, .sequence = 75, .heads = 2, .kv_heads = 1, .head_dim = 64});
  const AttentionShape s{.tokens = 40, .sequence = 40, .heads = 2, .kv_heads = 1};
  check(latent(s, 128, 56));
  check(latent(s, 192, 128));
  check(latent(s, 12, 8));
  check(latent(s, 64, 64), 1);  // not aligned
}
REHEARSE_TYPES(AttentionInFp16, Type::Float16);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
