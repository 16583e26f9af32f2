// SPDX-License-Identifier: Apache-2.0
// The heads of latent attention on the GPU (or in the emulation) against the CPU: copies, and of
// the rotary key's gradient a sum over the heads.
#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

class LatentTest : public KernelTest {
 protected:
  void check(const LatentShape& s, std::size_t shift = 0) {
    SCOPED_TRACE("plain " + std::to_string(s.plain) + ", rotary " + std::to_string(s.rotary) +
                 ", values " + std::to_string(s.values) + ", shift " + std::to_string(shift));
    const std::int64_t queries = s.tokens * s.heads * s.key(), rotary = s.tokens * s.rotary;
    const std::int64_t both = s.tokens * s.heads * (s.plain + s.values);
    const std::int64_t all = s.tokens * s.heads * (2 * s.key() + s.values);
    const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    const auto q = rounded(random_values(queries, 1), type());
    const auto kv = rounded(random_values(both, 2), type());
    const auto rotary_key = rounded(random_values(rotary, 3), type());
    const auto dqkv = rounded(random_values(all, 4), type());
    std::vector<float> qkv(size(all)), dq(size(queries)), dkv(size(both)), d_rotary(size(rotary));
    kernels().join_heads(s, q.data(), kv.data(), rotary_key.data(), qkv.data());
    kernels().split_heads(s, dqkv.data(), dq.data(), dkv.data(), d_rotary.data());

    Memory m(type());
    Array &q_m = m.values(q, shift), &kv_m = m.values(kv), &rotary_m = m.values(rotary_key),
          &dqkv_m = m.values(dqkv, shift);
    Array &qkv_m = m.empty(all), &dq_m = m.empty(queries), &dkv_m = m.empty(both),
          &d_rotary_m = m.empty(rotary);
    m.run([&] {
      const int status =
          join_heads(nullptr, type(), s, q_m.at(), kv_m.at(), rotary_m.at(), qkv_m.at());
      if (status != 0) return status;
      return split_heads(nullptr, type(), s, dqkv_m.at(), dq_m.at(), dkv_m.at(), d_rotary_m.at());
    });
    EXPECT_EQ(qkv_m.values(), qkv);
    EXPECT_EQ(dq_m.values(), dq);
    EXPECT_EQ(dkv_m.values(), dkv);
    // The same sums in the same order, rounded once.
    EXPECT_EQ(d_rotary_m.values(), rounded(d_rotary, type()));
  }
};

TEST_P(LatentTest, HeadsOfDeepSeek) {
  check({.tokens = 3, .heads = 16, .plain = 128, .rotary = 64, .values = 128});
}
TEST_P(LatentTest, ValuesNarrowerAndWiderThanPlainKeys) {
  check({.tokens = 7, .heads = 3, .plain = 16, .rotary = 8, .values = 8});
  check({.tokens = 7, .heads = 3, .plain = 8, .rotary = 16, .values = 40});
}
TEST_P(LatentTest, StretchesThatAreNotMultiplesOf16Bytes) {
  check({.tokens = 5, .heads = 3, .plain = 7, .rotary = 4, .values = 5});
  check({.tokens = 5, .heads = 2, .plain = 8, .rotary = 4, .values = 8});
}
TEST_P(LatentTest, ArraysThatAreNotAligned) {
  check({.tokens = 4, .heads = 2, .plain = 16, .rotary = 8, .values = 16}, 1);
}
REHEARSE_ALL_TYPES(LatentTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
