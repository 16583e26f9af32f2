// SPDX-License-Identifier: Apache-2.0
// Attention in parts on the GPU (or in the emulation) against the CPU.
#include <algorithm>

#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

// A part and the block of keys that it meets: 0 is the rank's own, in qkv.
struct Block {
  AttentionPart part;
  std::size_t keys = 0;
};

class AttentionPartTest : public KernelTest {
 protected:
  // Performs all parts, forward, then backward; the gradients of every block of keys are compared.
  void check(const AttentionShape& s, const std::vector<Block>& blocks, std::size_t num_blocks) {
    for (const AttentionEngine engine : engines()) check(s, blocks, num_blocks, engine);
  }
  void check(const AttentionShape& s, const std::vector<Block>& blocks, std::size_t num_blocks,
             AttentionEngine engine) {
    SCOPED_TRACE(name_of(engine) + ", sequence " + std::to_string(s.sequence) + ", head_dim " +
                 std::to_string(s.head_dim) + ", values " + std::to_string(s.values()));
    const std::int64_t queries = s.heads * s.head_dim, wide = s.heads * s.values(),
                       rows = s.heads * s.tokens;
    const double tolerance = bound(1e-5, 1e-2);
    const auto qkv = rounded(random_values(s.tokens * s.columns(), 1), type());
    const auto d_o = rounded(random_values(s.tokens * wide, 2), type());
    std::vector<std::vector<float>> others{{}};
    for (std::size_t b = 1; b < num_blocks; ++b) {
      const auto seed = static_cast<unsigned>(2 + b);
      others.push_back(rounded(random_values(s.tokens * s.kv_columns(), seed), type()));
    }
    const auto keys_of = [&](std::size_t block) {
      return block == 0 ? qkv.data() + queries : others[block].data();
    };

    std::vector<float> sum(d_o.size(), NAN), lse(static_cast<std::size_t>(rows), NAN);
    for (const Block& b : blocks) {
      kernels().attention_part(b.part, qkv.data(), keys_of(b.keys), sum.data(), lse.data());
    }
    Memory m(type());
    Array &qkv_m = m.values(qkv), &sum_m = m.empty_floats(s.tokens * wide);
    Array& lse_m = m.empty_floats(rows);
    std::vector<Array*> others_m{nullptr};
    for (std::size_t b = 1; b < num_blocks; ++b) others_m.push_back(&m.values(others[b]));
    const auto device_keys = [&](const Array& q, const std::vector<Array*>& all,
                                 std::size_t block) {
      if (block > 0) return static_cast<const void*>(all[block]->at());
      return static_cast<const void*>(q.at<std::byte>() + queries * bytes_of(type()));
    };
    m.run([&] {
      int status = 0;
      for (const Block& b : blocks) {
        if (status == 0) {
          status = attention_part(nullptr, type(), b.part, qkv_m.at(),
                                  device_keys(qkv_m, others_m, b.keys), sum_m.at<float>(),
                                  lse_m.at<float>(), engine);
        }
      }
      return status;
    });
    expect_close(sum_m.values(), sum, tolerance, "sum");
    expect_close(lse_m.as<float>(), lse, 1e-5, "lse");

    const std::vector<float> o = rounded(sum, type());
    std::vector<float> dq(static_cast<std::size_t>(s.tokens * queries), NAN),
        delta(lse.size(), NAN);
    std::vector<std::vector<float>> dkv(
        num_blocks, std::vector<float>(static_cast<std::size_t>(s.tokens * s.kv_columns()), 0.25F));
    bool first = true;
    for (Block b : blocks) {
      b.part.first = std::exchange(first, false);
      kernels().attention_part_backward(b.part, d_o.data(), qkv.data(), keys_of(b.keys), o.data(),
                                        lse.data(), dq.data(), dkv[b.keys].data(), delta.data());
    }
    Memory g(type());
    Array &qkv_g = g.values(qkv), &o_g = g.values(o), &d_o_g = g.values(d_o),
          &lse_g = g.floats(lse);
    Array &dq_g = g.empty_floats(s.tokens * queries), &delta_g = g.empty_floats(rows);
    std::vector<Array*> others_g{nullptr}, dkv_g;
    for (std::size_t b = 1; b < num_blocks; ++b) others_g.push_back(&g.values(others[b]));
    for (std::size_t b = 0; b < num_blocks; ++b) {
      dkv_g.push_back(&g.floats(std::vector<float>(dkv[b].size(), 0.25F)));  // is added to
    }
    std::int64_t most = 0;
    for (const Block& b : blocks) {
      most = std::max(most, attention_part_backward_scratch(type(), b.part));
    }
    Array& scratch = g.scratch(most);
    g.run([&] {
      int status = 0;
      bool begins = true;
      for (Block b : blocks) {
        b.part.first = std::exchange(begins, false);
        if (status == 0) {
          status = attention_part_backward(
              nullptr, type(), b.part, d_o_g.at(), qkv_g.at(), device_keys(qkv_g, others_g, b.keys),
              o_g.at(), lse_g.at<float>(), dq_g.at<float>(), dkv_g[b.keys]->at<float>(),
              delta_g.at<float>(), scratch.at(), engine);
        }
      }
      return status;
    });
    expect_close(dq_g.values(), dq, tolerance, "dq");
    for (std::size_t b = 0; b < num_blocks; ++b) {
      expect_close(dkv_g[b]->as<float>(), dkv[b], tolerance, "dkv " + std::to_string(b));
    }
  }

  static AttentionPart own(const AttentionShape& s) {
    return {.shape = s,
            .query_end = s.sequence,
            .key_end = s.sequence,
            .key_stride = s.columns(),
            .causal = true,
            .first = true};
  }
  static AttentionPart other(const AttentionShape& s) {
    return {
        .shape = s, .query_end = s.sequence, .key_end = s.sequence, .key_stride = s.kv_columns()};
  }
  // As the middle rank of a ring of three: all queries meet the first half of an earlier rank's
  // keys, the second half of the queries all of a later one's.
  void check_ring(const AttentionShape& s) {
    AttentionPart earlier = other(s), later = other(s);
    earlier.key_end = s.sequence / 2;
    later.query_begin = s.sequence / 2;
    check(s, {{own(s), 0}, {earlier, 1}, {later, 2}}, 3);
  }
};

TEST_P(AttentionPartTest, ARingOverSeveralTilesWithGroupedKeys) {
  check_ring({.tokens = 150, .sequence = 150, .heads = 2, .kv_heads = 1, .head_dim = 64});
}
TEST_P(AttentionPartTest, ARingOfTwoSamplesWithHeadsOf128) {
  check_ring({.tokens = 2 * 38, .sequence = 38, .heads = 1, .kv_heads = 1, .head_dim = 128});
}
TEST_P(AttentionPartTest, ARingOfLatentHeads) {
  check_ring({.tokens = 150,
              .sequence = 150,
              .heads = 2,
              .kv_heads = 2,
              .head_dim = 192,
              .value_dim = 128});
  check_ring(
      {.tokens = 80, .sequence = 40, .heads = 2, .kv_heads = 1, .head_dim = 24, .value_dim = 72});
}
TEST_P(AttentionPartTest, SlicesMeetAllEarlierKeys) {
  const AttentionShape s{.tokens = 33, .sequence = 33, .heads = 2, .kv_heads = 2, .head_dim = 24};
  check(s, {{own(s), 0}, {other(s), 1}, {other(s), 2}}, 3);
}
TEST_P(AttentionPartTest, KeysThatBeginInTheMiddle) {
  const AttentionShape s{.tokens = 100, .sequence = 100, .heads = 1, .kv_heads = 1, .head_dim = 64};
  AttentionPart part = other(s);
  part.key_begin = 30;
  part.key_end = 97;
  check(s, {{own(s), 0}, {part, 1}}, 2);
}
TEST_P(AttentionPartTest, KeysThatEndOneShortOfATile) {
  const AttentionShape s{.tokens = 130, .sequence = 130, .heads = 1, .kv_heads = 1, .head_dim = 64};
  AttentionPart part = other(s);
  part.key_begin = 1;
  part.key_end = 128;
  check(s, {{own(s), 0}, {part, 1}}, 2);
}
// The two chunks that the first rank of a ring of two has of a sample: the first and the fourth.
TEST_P(AttentionPartTest, PairsOfChunksThatDoNotFollowOneAnother) {
  const std::int64_t chunk = 35;
  AttentionShape s{
      .tokens = 4 * chunk, .sequence = 2 * chunk, .heads = 2, .kv_heads = 1, .head_dim = 24};
  for (const std::int64_t window : {0, 80, 120}) {  // of all keys, of none of the other chunk's
    s.form.window = window;
    const auto pair = [&](std::int64_t query, std::int64_t key) {
      AttentionPart part = own(s);
      part.query_begin = query * chunk;
      part.query_end = part.query_begin + chunk;
      part.key_begin = key * chunk;
      part.key_end = part.key_begin + chunk;
      part.causal = part.first = query == key;
      part.query_position = query * 2 * chunk;  // of row 0: chunk 1's rows are at 3 chunks
      part.key_position = key * 2 * chunk;
      return Block{part, 0};
    };
    check(s, {pair(0, 0), pair(1, 1), pair(1, 0)}, 1);
  }
}
TEST_P(AttentionPartTest, HeadsThatNoTensorCoreKernelTakes) {
  check_ring({.tokens = 40, .sequence = 40, .heads = 2, .kv_heads = 1, .head_dim = 5});
}
TEST_P(AttentionPartTest, PartsThatNoKernelTakesAreRefused) {
  const AttentionShape s{.tokens = 4, .sequence = 4, .heads = 1, .kv_heads = 1, .head_dim = 8};
  AttentionPart part = other(s);
  part.key_end = 5;  // beyond the block
  EXPECT_EQ(attention_part(nullptr, type(), part, nullptr, nullptr, nullptr, nullptr), 1);
  part = own(s);
  part.query_begin = 1;  // causal, but not from the start
  EXPECT_EQ(attention_part(nullptr, type(), part, nullptr, nullptr, nullptr, nullptr), 1);
}
REHEARSE_WIDER_TYPES(AttentionPartTest);

class AttentionPartInFp16 : public AttentionPartTest {};
TEST_P(AttentionPartInFp16, ARing) {
  check_ring({.tokens = 2 * 38, .sequence = 38, .heads = 2, .kv_heads = 1, .head_dim = 64});
  check_ring({.tokens = 40, .sequence = 40, .heads = 2, .kv_heads = 1, .head_dim = 5});
}
REHEARSE_TYPES(AttentionPartInFp16, Type::Float16);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
