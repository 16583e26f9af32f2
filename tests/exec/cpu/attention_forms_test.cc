// SPDX-License-Identifier: Apache-2.0
// Attention with scales, soft caps, windows, ALiBi, sinks and dropout, alone and together, whole
// and in parts, against the definition in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "exec/cpu/kernels/table.h"
#include "tests/exec/cpu/exact_attention.h"

namespace rehearse::exec {
namespace {

struct Form {
  std::string name;
  AttentionForm form;
  bool sinks = false;
};
void PrintTo(const Form& f, std::ostream* to) {
  *to << f.name;
}

DropoutShape third() {
  DropoutShape drop = dropout_of(0.3, 1234, 5, 6, DropoutSite::Attention);
  drop.first = 3'000'000'000;  // more than 32 bits hold, further down
  return drop;
}

const Form kForms[] = {
    {"scale", {.scale = 0.3}},
    {"softcap", {.softcap = 2}},
    {"window_of_one", {.window = 1}},
    {"window_of_5", {.window = 5}},
    {"window_of_70", {.window = 70}},
    {"window_longer_than_all", {.window = 5000}},
    {"alibi", {.alibi_heads = 4}},
    {"alibi_of_a_later_rank", {.alibi_heads = 12, .first_head = 8}},
    {"sinks", {}, true},
    {"dropout", {.dropout = third(), .dropout_sequence = 1'500'000'000}},
    {"all",
     {.scale = 0.2,
      .softcap = 3,
      .window = 40,
      .alibi_heads = 4,
      .dropout = third(),
      .dropout_sequence = 200},
     true},
};

struct Case {
  std::int64_t samples, sequence, heads, kv_heads, head_dim, value_dim;
};
// Sequences end inside of tiles of queries (64, 192) and of keys (64); values are narrower and
// wider than keys.
const Case kCases[] = {{2, 7, 2, 1, 4, 4},
                       {2, 65, 4, 2, 20, 20},
                       {1, 300, 4, 4, 16, 16},
                       {2, 65, 4, 4, 24, 16},
                       {1, 70, 4, 2, 8, 37}};

AttentionShape shape_of(const Case& c, const AttentionForm& form) {
  return {.tokens = c.samples * c.sequence,
          .sequence = c.sequence,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .value_dim = c.value_dim,
          .form = form};
}

class AttentionForms : public testing::TestWithParam<Form> {
 protected:
  // Slopes for heads that there are; sinks about as large as scores.
  AttentionShape shape(const Case& c) {
    AttentionShape s = shape_of(c, GetParam().form);
    sinks = noise(c.heads, 3);
    if (GetParam().sinks) s.form.sinks = sinks.data();
    return s;
  }
  Floats sinks;
};

// d loss / d x is (loss(x + e) - loss(x - e)) / 2 e up to e^2: holds the reference's gradients.
TEST_P(AttentionForms, ReferenceHasTheSlopesOfItsLoss) {
  const AttentionShape s = shape({1, 9, 4, 2, 3, 5});
  const Floats noisy = noise(s.tokens * s.columns(), 1), d_o = noise(s.tokens * 20, 2);
  const Doubles qkv(noisy.begin(), noisy.end());
  const auto loss = [&](const Doubles& at_qkv) {
    const Exact exact(s, at_qkv, d_o);
    double sum = 0;
    for (std::size_t i = 0; i < d_o.size(); ++i) sum += exact.o[i] * static_cast<double>(d_o[i]);
    return sum;
  };
  const Exact exact(s, qkv, d_o);
  for (std::size_t i = 0; i < qkv.size(); i += 7) {
    Doubles more = qkv, less = qkv;
    more[i] += 1e-5;
    less[i] -= 1e-5;
    EXPECT_NEAR(exact.dqkv[i], (loss(more) - loss(less)) / 2e-5, 1e-7) << i;
  }
  if (!GetParam().sinks) return;
  const auto moved = [&](float by) {  // sinks are floats: a step that they can take
    sinks[1] += by;
    const double at_sink = loss(qkv);
    sinks[1] -= by;
    return at_sink;
  };
  EXPECT_NEAR(exact.d_sinks[1], (moved(0x1p-10F) - moved(-0x1p-10F)) / 0x1p-9, 1e-5);
}

TEST_P(AttentionForms, AreTheDefinition) {
  for (const Case& c : kCases) {
    const AttentionShape s = shape(c);
    const Floats qkv = noise(s.tokens * s.columns(), 1),
                 d_o = noise(s.tokens * c.heads * c.value_dim, 2);
    const Exact exact(s, qkv, d_o);
    for (const KernelTable& kernel : kernel_tables()) {
      SCOPED_TRACE(std::string(kernel.instruction_set) + ", sequence " +
                   std::to_string(c.sequence));
      Floats o(exact.o.size(), NAN), lse(exact.lse.size(), NAN), delta = lse, dqkv(qkv.size(), NAN);
      kernel.attention(s, qkv.data(), o.data(), lse.data());
      EXPECT_LE(distance(o, exact.o), 2e-6);
      EXPECT_LE(distance(lse, exact.lse), 1e-6);
      kernel.attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                                delta.data());
      EXPECT_LE(distance(dqkv, exact.dqkv), 4e-6);
      if (!GetParam().sinks) continue;
      Floats d_sinks(at(c.heads), 0.0F);
      kernel.sink_gradient(s, lse.data(), delta.data(), d_sinks.data());
      EXPECT_LE(distance(d_sinks, exact.d_sinks), 4e-6);
    }
  }
}

// Queries of the later half meet their own keys, then those of the earlier half, which begins at
// position 0: what a slice of the sequence does. A window may reach none of the earlier keys.
TEST_P(AttentionForms, InPartsAreTheWhole) {
  for (const Case& c : {Case{2, 130, 4, 2, 20, 20}, Case{2, 130, 4, 2, 20, 12}}) {
    const AttentionShape whole = shape(c);
    const std::int64_t half = c.sequence / 2, columns = whole.columns(), kv = whole.kv_columns(),
                       width = c.heads * c.value_dim, queries = c.heads * c.head_dim;
    AttentionShape later = whole;
    later.tokens = c.samples * half;
    later.sequence = half;
    const auto rows_of = [&](const auto& all, std::int64_t stride, std::int64_t begin,
                             std::int64_t column, std::int64_t cols) {
      auto some = all;
      some.clear();
      for (std::int64_t r = 0; r < c.samples * half; ++r) {
        const auto row = all.begin() + (r / half * c.sequence + begin + r % half) * stride + column;
        some.insert(some.end(), row, row + cols);
      }
      return some;
    };
    const Floats qkv = noise(whole.tokens * columns, 1), all_d_o = noise(whole.tokens * width, 2);
    const Exact exact(whole, qkv, all_d_o);
    const Floats mine = rows_of(qkv, columns, half, 0, columns),
                 g = rows_of(all_d_o, width, half, 0, width),
                 own_keys = rows_of(qkv, columns, half, queries, kv),
                 earlier = rows_of(qkv, columns, 0, queries, kv);
    AttentionPart causal{.shape = later,
                         .query_end = half,
                         .key_end = half,
                         .key_stride = kv,
                         .causal = true,
                         .first = true,
                         .query_position = half,
                         .key_position = half};
    AttentionPart before = causal;
    before.causal = before.first = false;
    before.key_position = 0;
    for (const KernelTable& kernel : kernel_tables()) {
      SCOPED_TRACE(kernel.instruction_set);
      Floats o(g.size(), NAN), lse(at(c.heads * later.tokens), NAN), delta = lse;
      kernel.attention_part(causal, mine.data(), own_keys.data(), o.data(), lse.data());
      kernel.attention_part(before, mine.data(), earlier.data(), o.data(), lse.data());
      EXPECT_LE(distance(o, rows_of(exact.o, width, half, 0, width)), 2e-6);
      Floats dq(at(later.tokens * queries), NAN), d_own(own_keys.size()), d_earlier(earlier.size());
      kernel.attention_part_backward(causal, g.data(), mine.data(), own_keys.data(), o.data(),
                                     lse.data(), dq.data(), d_own.data(), delta.data());
      kernel.attention_part_backward(before, g.data(), mine.data(), earlier.data(), o.data(),
                                     lse.data(), dq.data(), d_earlier.data(), delta.data());
      EXPECT_LE(distance(dq, rows_of(exact.dqkv, columns, half, 0, queries)), 4e-6);
      EXPECT_LE(distance(d_own, rows_of(exact.dqkv, columns, half, queries, kv)), 4e-6);
    }
  }
}

// A thread keeps its copies of tiles: what a step that failed has left in them changes nothing.
TEST_P(AttentionForms, TakeNothingOverFromTheCallBefore) {
  const AttentionShape s = shape({1, 300, 4, 4, 16, 16});
  const Floats qkv = noise(s.tokens * s.columns(), 1), d_o = noise(s.tokens * 64, 2),
               none(qkv.size(), NAN);
  for (const KernelTable& kernel : kernel_tables()) {
    SCOPED_TRACE(kernel.instruction_set);
    const auto gradients = [&](const Floats& of) {
      Floats o(d_o.size()), lse(at(4 * s.tokens)), delta = lse, dqkv(qkv.size());
      kernel.attention(s, of.data(), o.data(), lse.data());
      kernel.attention_backward(s, d_o.data(), of.data(), o.data(), lse.data(), dqkv.data(),
                                delta.data());
      return dqkv;
    };
    const Floats before = gradients(qkv);
    gradients(none);
    EXPECT_EQ(gradients(qkv), before);
  }
}

// AVX2 and AVX-512 have panels of different widths, hence skip different keys: same bits.
TEST_P(AttentionForms, HaveTheSameBitsWithEverySet) {
  const KernelTable *narrow = nullptr, *wide = nullptr;
  for (const KernelTable& table : kernel_tables()) {
    if (table.instruction_set == "avx2") narrow = &table;
    if (table.instruction_set == "avx512") wide = &table;
  }
  if (narrow == nullptr || wide == nullptr) GTEST_SKIP() << "SKIPPED: no AVX-512 beside AVX2";
  for (const Case& c : kCases) {
    const AttentionShape s = shape(c);
    const Floats qkv = noise(s.tokens * s.columns(), 1),
                 d_o = noise(s.tokens * c.heads * c.value_dim, 2);
    Floats o[2], dqkv[2];
    for (int k = 0; k < 2; ++k) {
      const KernelTable& kernel = k == 0 ? *narrow : *wide;
      o[k].resize(d_o.size());
      dqkv[k].resize(qkv.size());
      Floats lse(at(c.heads * s.tokens)), delta = lse;
      kernel.attention(s, qkv.data(), o[k].data(), lse.data());
      kernel.attention_backward(s, d_o.data(), qkv.data(), o[k].data(), lse.data(), dqkv[k].data(),
                                delta.data());
    }
    EXPECT_EQ(o[0], o[1]) << c.sequence;
    EXPECT_EQ(dqkv[0], dqkv[1]) << c.sequence;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, AttentionForms, testing::ValuesIn(kForms),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace rehearse::exec
