// SPDX-License-Identifier: Apache-2.0
// Cross-entropy against the CPU: a part of a vocabulary, padding, and the fused form.
#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

class LossTest : public KernelTest {
 protected:
  // first > 0: a rank that holds [first, first + valid) of the vocabulary
  void check(std::int64_t rows, std::int64_t columns, std::int64_t valid, std::int64_t first,
             float cap = 0) {
    SCOPED_TRACE(std::to_string(columns) + " columns, " + std::to_string(valid) + " valid");
    const VocabularyShape shape{.columns = columns, .valid = valid, .first = first, .softcap = cap};
    auto logits = random_values(rows * columns, 1, 3.0F);
    if (cap > 0) kernels().softcap(rows * columns, cap, logits.data());
    logits = rounded(logits, type());
    for (std::int64_t r = 0; r < rows; ++r) {  // padding that no product has written
      std::fill(logits.begin() + r * columns + valid, logits.begin() + (r + 1) * columns, NAN);
    }
    std::vector<std::int32_t> targets;
    std::mt19937 random(2);
    for (std::int64_t r = 0; r < rows; ++r) {
      const auto target = std::uniform_int_distribution<std::int64_t>(0, first + valid - 1)(random);
      targets.push_back(static_cast<std::int32_t>(target));
    }
    const float scale = 1.0F / 37.0F;
    std::vector<float> maxima(size(rows)), sums(size(2 * rows)), gradient = logits;
    float loss = 0.25F;
    kernels().row_maxima(rows, shape, logits.data(), maxima.data());
    kernels().row_sums(rows, shape, logits.data(), maxima.data(), targets.data(), sums.data());
    kernels().loss_and_gradient(rows, shape, maxima.data(), sums.data(), targets.data(), scale,
                                gradient.data(), &loss);
    // The special function unit's exponentials in 16 bits.
    const double sums_tolerance = type() == Type::Float32 ? 2e-6 : 1e-5;

    Memory m(type());
    Array &l = m.values(logits), &t = m.raw(targets), &top = m.empty_floats(rows);
    Array &s = m.empty_floats(2 * rows), &total = m.floats({0.25F});
    m.run([&] {
      int status = row_maxima(nullptr, type(), rows, shape, l.at(), top.at<float>());
      if (status == 0) {
        status = row_sums(nullptr, type(), rows, shape, l.at(), top.at<float>(),
                          t.at<std::int32_t>(), s.at<float>());
      }
      if (status == 0) {
        status = loss_and_gradient(nullptr, type(), rows, shape, top.at<float>(), s.at<float>(),
                                   t.at<std::int32_t>(), scale, l.at(), total.at<float>());
      }
      return status;
    });
    expect_close(top.values(), maxima, 0, "maxima");
    expect_close(s.values(), sums, sums_tolerance, "sums");
    expect_close(l.values(), gradient, tolerance(), "d_logits");
    expect_close(total.values(), {loss}, sums_tolerance, "loss");

    if (first != 0) return;
    Memory f(type());
    Array &l_f = f.values(logits), &t_f = f.raw(targets), &top_f = f.empty_floats(rows);
    Array &s_f = f.empty_floats(2 * rows), &total_f = f.floats({0.25F});
    f.run([&] {
      return cross_entropy(nullptr, type(), rows, shape, t_f.at<std::int32_t>(), scale,
                           top_f.at<float>(), s_f.at<float>(), l_f.at(), total_f.at<float>());
    });
    expect_close(top_f.values(), maxima, 0, "maxima, fused");
    expect_close(s_f.values(), sums, sums_tolerance, "sums, fused");
    expect_close(l_f.values(), gradient, tolerance(), "d_logits, fused");
    expect_close(total_f.values(), {loss}, sums_tolerance, "loss, fused");
  }
};

TEST_P(LossTest, OverAWholeVocabulary) {
  check(3, 2600, 2600, 0);
}
TEST_P(LossTest, OverARowThatSharedMemoryDoesNotHold) {
  check(2, 50560, 50500, 0);  // 101,120 B in bf16
}
TEST_P(LossTest, WithPaddingThatNoVectorDivides) {
  check(5, 304, 301, 0);
}
TEST_P(LossTest, OverAnOddVocabulary) {
  check(4, 77, 77, 0);
}
TEST_P(LossTest, OverAPartOfTheVocabulary) {
  check(6, 128, 120, 200);
}
TEST_P(LossTest, OverCappedLogits) {
  check(3, 304, 301, 0, 4);
  check(6, 128, 120, 200, 4);
}
REHEARSE_ALL_TYPES(LossTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
