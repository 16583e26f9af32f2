// SPDX-License-Identifier: Apache-2.0
// Attention with scales, soft caps, windows, ALiBi, sinks and dropout on the GPU (or in the
// emulation) against the CPU: whole, and the later half of a sequence in two parts.
#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

class AttentionFormTest : public KernelTest {
 protected:
  static DropoutShape third() {
    DropoutShape drop = dropout_of(0.3, 1, 2, 3, DropoutSite::Attention);
    drop.first = 100;
    return drop;
  }
  // Several tiles of queries and of keys; grouped keys.
  void check(const AttentionForm& form, bool with_sinks = false) {
    // Tensor cores take the plain form alone.
    const bool plain = form.plain() && !with_sinks;
    for (const AttentionEngine engine : plain ? engines() : std::vector{AttentionEngine::MmaSync}) {
      for (const auto& [head_dim, values] : {std::pair{64, 64}, {20, 20}, {24, 16}, {16, 40}}) {
        SCOPED_TRACE(name_of(engine) + ", head_dim " + std::to_string(head_dim) + ", values " +
                     std::to_string(values));
        const AttentionShape s{.tokens = 2 * 100,
                               .sequence = 100,
                               .heads = 2,
                               .kv_heads = 1,
                               .head_dim = head_dim,
                               .value_dim = values,
                               .form = form};
        check_whole(s, with_sinks, engine);
        check_parts(s, with_sinks, engine);
      }
    }
  }

 private:
  double close() const { return bound(1e-5, 1e-2); }

  void check_whole(AttentionShape s, bool with_sinks, AttentionEngine engine) {
    const std::int64_t wide = s.heads * s.values(), rows = s.heads * s.tokens;
    const auto qkv = rounded(random_values(s.tokens * s.columns(), 1), type());
    const auto d_o = rounded(random_values(s.tokens * wide, 2), type());
    const auto sinks = rounded(random_values(s.heads, 3), type());
    if (with_sinks) s.form.sinks = sinks.data();
    std::vector<float> o(d_o.size()), lse(static_cast<std::size_t>(rows)), delta(lse.size()),
        dqkv(qkv.size()), d_sinks(sinks.size(), 0.5F);
    kernels().attention(s, qkv.data(), o.data(), lse.data());
    const auto exact = o;
    o = rounded(o, type());
    kernels().attention_backward(s, d_o.data(), qkv.data(), o.data(), lse.data(), dqkv.data(),
                                 delta.data());
    if (with_sinks) kernels().sink_gradient(s, lse.data(), delta.data(), d_sinks.data());

    Memory m(type());
    Array &qkv_m = m.values(qkv), &d_o_m = m.values(d_o), &o_m = m.values(o),
          &sinks_m = m.values(sinks), &lse_m = m.floats(lse), &ds_m = m.floats({0.5F, 0.5F});
    Array &out = m.empty(s.tokens * wide), &lse_out = m.empty_floats(rows),
          &dqkv_m = m.empty(s.tokens * s.columns()), &delta_m = m.empty_floats(rows),
          &scratch = m.scratch(attention_backward_scratch(type(), s));
    m.run([&] {
      if (with_sinks) s.form.sinks = sinks_m.at();
      int status = attention(nullptr, type(), s, qkv_m.at(), out.at(), lse_out.at<float>(), engine);
      if (status == 0) {
        status = attention_backward(nullptr, type(), s, d_o_m.at(), qkv_m.at(), o_m.at(),
                                    lse_m.at<float>(), dqkv_m.at(), delta_m.at<float>(),
                                    scratch.at(), engine);
      }
      if (status != 0 || !with_sinks) return status;
      return sink_gradient(nullptr, type(), s, lse_m.at<float>(), delta_m.at<float>(),
                           ds_m.at<float>());
    });
    expect_close(out.values(), exact, close(), "o");
    expect_close(lse_out.values(), lse, 1e-5, "lse");
    expect_close(dqkv_m.values(), dqkv, close(), "dqkv");
    expect_close(ds_m.as<float>(), d_sinks, 1e-5, "d_sinks");
  }

  // The later half of the sequence meets its own keys, then the earlier half's, of which a window
  // may reach none.
  void check_parts(AttentionShape s, bool with_sinks, AttentionEngine engine) {
    s.sequence = 50;
    s.tokens = 2 * s.sequence;
    const std::int64_t queries = s.heads * s.head_dim, wide = s.heads * s.values(),
                       rows = s.heads * s.tokens;
    const auto qkv = rounded(random_values(s.tokens * s.columns(), 1), type());
    const auto d_o = rounded(random_values(s.tokens * wide, 2), type());
    const auto earlier = rounded(random_values(s.tokens * s.kv_columns(), 4), type());
    const auto sinks = rounded(random_values(s.heads, 3), type());
    const auto part_of = [&](bool own, const void* sinks_at) {
      AttentionPart part{.shape = s,
                         .query_end = s.sequence,
                         .key_end = s.sequence,
                         .key_stride = own ? s.columns() : s.kv_columns(),
                         .causal = own,
                         .first = own,
                         .query_position = s.sequence,
                         .key_position = own ? s.sequence : 0};
      if (with_sinks) part.shape.form.sinks = sinks_at;
      return part;
    };
    std::vector<float> sum(d_o.size(), NAN), lse(static_cast<std::size_t>(rows), NAN),
        delta = lse, dq(static_cast<std::size_t>(s.tokens * queries), NAN);
    std::vector<float> d_own(static_cast<std::size_t>(s.tokens * s.kv_columns())),
        d_earlier = d_own;
    const AttentionPart own = part_of(true, sinks.data()), before = part_of(false, sinks.data());
    kernels().attention_part(own, qkv.data(), qkv.data() + queries, sum.data(), lse.data());
    kernels().attention_part(before, qkv.data(), earlier.data(), sum.data(), lse.data());
    const std::vector<float> o = rounded(sum, type());
    kernels().attention_part_backward(own, d_o.data(), qkv.data(), qkv.data() + queries, o.data(),
                                      lse.data(), dq.data(), d_own.data(), delta.data());
    kernels().attention_part_backward(before, d_o.data(), qkv.data(), earlier.data(), o.data(),
                                      lse.data(), dq.data(), d_earlier.data(), delta.data());

    Memory m(type());
    Array &qkv_m = m.values(qkv), &earlier_m = m.values(earlier), &d_o_m = m.values(d_o),
          &o_m = m.values(o), &sinks_m = m.values(sinks), &lse_in = m.floats(lse);
    Array &sum_m = m.empty_floats(s.tokens * wide), &lse_m = m.empty_floats(rows),
          &dq_m = m.empty_floats(s.tokens * queries), &delta_m = m.empty_floats(rows),
          &scratch = m.scratch(attention_part_backward_scratch(type(), own));
    const std::vector<float> none(d_own.size());
    Array &d_own_m = m.floats(none), &d_earlier_m = m.floats(none);
    m.run([&] {
      int status = 0;
      for (const bool is_own : {true, false}) {
        const AttentionPart part = part_of(is_own, sinks_m.at());
        const void* keys =
            is_own ? qkv_m.at<std::byte>() + queries * bytes_of(type()) : earlier_m.at<std::byte>();
        if (status == 0) {
          status = attention_part(nullptr, type(), part, qkv_m.at(), keys, sum_m.at<float>(),
                                  lse_m.at<float>(), engine);
        }
        if (status == 0) {
          status = attention_part_backward(nullptr, type(), part, d_o_m.at(), qkv_m.at(), keys,
                                           o_m.at(), lse_in.at<float>(), dq_m.at<float>(),
                                           (is_own ? d_own_m : d_earlier_m).at<float>(),
                                           delta_m.at<float>(), scratch.at(), engine);
        }
      }
      return status;
    });
    expect_close(sum_m.values(), sum, close(), "sum");
    expect_close(lse_m.as<float>(), lse, 1e-5, "lse");
    expect_close(dq_m.values(), dq, close(), "dq");
    expect_close(d_own_m.as<float>(), d_own, close(), "dkv");
    expect_close(d_earlier_m.as<float>(), d_earlier, close(), "dkv of the earlier half");
  }
};

TEST_P(AttentionFormTest, Scale) {
  check({.scale = 0.3});
}
TEST_P(AttentionFormTest, Softcap) {
  check({.softcap = 2});
}
TEST_P(AttentionFormTest, Windows) {
  check({.window = 5});
  check({.window = 60});
}
TEST_P(AttentionFormTest, Alibi) {
  check({.alibi_heads = 6, .first_head = 3});
}
TEST_P(AttentionFormTest, Sinks) {
  check({}, true);
}
TEST_P(AttentionFormTest, Dropout) {
  check({.dropout = third(), .dropout_sequence = 100});
}
TEST_P(AttentionFormTest, AllAtOnce) {
  check({.scale = 0.2,
         .softcap = 3,
         .window = 40,
         .alibi_heads = 4,
         .first_head = 1,
         .dropout = third(),
         .dropout_sequence = 100},
        true);
}
REHEARSE_WIDER_TYPES(AttentionFormTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
