// SPDX-License-Identifier: Apache-2.0
// Norms, clipping and AdamW against exec/cpu/optimizer.cc.
#include "exec/cpu/optimizer.h"

#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

class StepTest : public KernelTest {};

// Tensors at odd places, one over several pieces, two ranges of one slot.
const std::vector<TensorRange> kRanges = {
    {.begin = 0, .end = 3, .slot = 1, .decays = true},
    {.begin = 3, .end = 40001, .slot = 0, .decays = true},
    {.begin = 40001, .end = 40006, .slot = 2, .decays = false},
    {.begin = 40010, .end = 40100, .slot = 1, .decays = false}};
constexpr std::int64_t kCount = 40100;

TEST_P(StepTest, PiecesCoverTheRangesOnce) {
  const Pieces cut = cut_into_pieces(kRanges);
  ASSERT_EQ(cut.runs.size(), kRanges.size());
  for (std::size_t k = 0; k < kRanges.size(); ++k) {
    std::int64_t at = kRanges[k].begin;
    for (std::int32_t i = 0; i < cut.runs[k].count; ++i) {
      const Piece& piece = cut.pieces[static_cast<std::size_t>(cut.runs[k].first + i)];
      EXPECT_EQ(piece.begin, at);
      EXPECT_GT(piece.count, 0);
      EXPECT_LE(piece.count, kPieceElements);
      EXPECT_EQ(piece.decays != 0, kRanges[k].decays);
      at += piece.count;
    }
    EXPECT_EQ(at, kRanges[k].end);
  }
}

TEST_P(StepTest, SquaresOfTensorsAndTheClipFactor) {
  const auto values = random_values(kCount, 1);
  std::vector<double> expected = {0.5, 0, 0};
  for (const TensorRange& range : kRanges) {
    expected[static_cast<std::size_t>(range.slot)] +=
        exec::sum_of_squares({values.data() + range.begin, values.data() + range.end});
  }
  double all = 0;
  for (const double slot : expected) all += slot;
  const Pieces cut = cut_into_pieces(kRanges);
  const auto num_pieces = static_cast<std::int64_t>(cut.pieces.size());
  const auto num_runs = static_cast<std::int64_t>(cut.runs.size());
  Memory m(type());
  Array &v = m.floats(values), &pieces = m.raw(cut.pieces), &runs = m.raw(cut.runs);
  Array &partials = m.scratch(8 * num_pieces), &slots = m.raw<double>({0.5, 0, 0});
  Array &factor = m.empty_floats(1), &unclipped = m.empty_floats(1), &large = m.empty_floats(1);
  m.run([&] {
    int status =
        sum_of_squares(nullptr, v.at<float>(), pieces.at<Piece>(), num_pieces, runs.at<SlotRun>(),
                       num_runs, partials.at<double>(), slots.at<double>());
    const auto clip = [&](double norm, const Array& to) {
      if (status == 0) {
        status = clip_factor(nullptr, slots.at<double>(), 3, norm, 0, to.at<float>());
      }
    };
    clip(1.5, factor);
    clip(0, unclipped);
    clip(1e9, large);
    return status;
  });
  const auto actual = slots.as<double>();
  for (std::size_t k = 0; k < 3; ++k) EXPECT_NEAR(actual[k] / expected[k], 1.0, 1e-13);
  expect_close(factor.values(), {exec::clip_factor(std::sqrt(all), 1.5)}, 1e-7, "factor");
  EXPECT_EQ(unclipped.values(), std::vector<float>{1.0F});
  EXPECT_EQ(large.values(), std::vector<float>{1.0F});
}

// With a scale of the loss, gradients and norm are that much too large, and the factor takes it
// away. Sums that are not finite leave every array as it was; without a scale they are no numbers.
TEST_P(StepTest, OverflowedGradientsLeaveTheUpdateOut) {
  const double scale = 1024, norm = 3;
  const std::vector<double> fine{scale * scale * norm * norm, 0};
  const std::vector<float> before{1, 2, 3, 4}, gradients{4, 3, 2, 1};
  const Pieces cut = cut_into_pieces(std::vector<TensorRange>{{0, 4, 0, true}});
  for (const double lost : {0.0, double{INFINITY}, double{NAN}}) {
    for (const double scaled : {scale, 0.0}) {
      Memory m(type());
      std::vector<double> squares = fine;
      squares[1] = lost;
      Array &s = m.raw(squares), &factor = m.empty_floats(1), &pieces = m.raw(cut.pieces);
      Array &g = m.floats(gradients), &w = m.floats(before), &first = m.floats(before);
      Array &second = m.floats(before), &p = m.values(before);
      void* written = nullptr;
      m.run([&] {
        written = type() == Type::Float32 ? nullptr : p.at();
        int status = clip_factor(nullptr, s.at<double>(), 2, 1.5, scaled, factor.at<float>());
        if (status == 0) {
          status = adamw(nullptr, type(), adamw_constants(0.9, 0.99, 1e-8, 0.1, 0.1, 0),
                         pieces.at<Piece>(), 1, g.at<float>(), factor.at<float>(), w.at<float>(),
                         first.at<float>(), second.at<float>(), written);
        }
        if (status != 0) return status;
        return lion(nullptr, type(), lion_constants(0.9, 0.99, 0.1, 0.1), pieces.at<Piece>(), 1,
                    g.at<float>(), factor.at<float>(), second.at<float>(), first.at<float>(),
                    written);
      });
      if (lost == 0 && scaled > 0) {
        const float clip = exec::clip_factor(norm, 1.5);
        EXPECT_EQ(factor.values()[0], static_cast<float>(double{clip} / scale));
      }
      const bool kept = w.values() == before && first.values() == before &&
                        second.values() == before && p.values() == before;
      EXPECT_EQ(kept, scaled > 0 && lost != 0) << lost << ' ' << scaled;
      EXPECT_EQ(std::isnan(w.values()[0]), scaled == 0 && std::isnan(lost));
    }
  }
}

TEST_P(StepTest, AdamWOverAFlatShard) {
  const TrainOptions options{.beta2 = 0.95, .weight_decay = 0.1};
  const double rate = 1e-2;
  const auto gradients = random_values(kCount, 1);
  auto master = random_values(kCount, 2), m = random_values(kCount, 3, 0.1F);
  auto v = random_values(kCount, 4, 0.1F);
  for (float& value : v) value *= value;
  const float scale = 0.75F;
  auto expected = master, expected_m = m, expected_v = v;
  for (const TensorRange& range : kRanges) {
    const auto part = [&](std::vector<float>& all) {
      return std::span<float>(all.data() + range.begin, all.data() + range.end);
    };
    exec::adamw(part(expected), {gradients.data() + range.begin, gradients.data() + range.end},
                part(expected_m), part(expected_v), options, rate,
                range.decays ? options.weight_decay : 0.0, 3, scale);
  }
  const AdamW constants =
      adamw_constants(options.beta1, options.beta2, options.epsilon, rate, options.weight_decay, 3);
  const Pieces cut = cut_into_pieces(kRanges);
  for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
    Memory d(type());
    Array &g = d.floats(gradients, shift), &w = d.floats(master, shift), &m_at = d.floats(m, shift);
    Array &v_at = d.floats(v, shift), &pieces = d.raw(cut.pieces), &factor = d.floats({scale});
    Array& parameters = d.values(master, shift);
    const bool half = type() != Type::Float32;
    d.run([&] {
      return adamw(nullptr, type(), constants, pieces.at<Piece>(),
                   static_cast<std::int64_t>(cut.pieces.size()), g.at<float>(), factor.at<float>(),
                   w.at<float>(), m_at.at<float>(), v_at.at<float>(),
                   half ? parameters.at() : nullptr);
    });
    expect_close(w.values(), expected, 3e-7, "master");
    expect_close(m_at.values(), expected_m, 3e-7, "m");
    expect_close(v_at.values(), expected_v, 3e-7, "v");
    if (!half) continue;
    // Between the ranges lie padding elements that no piece covers: they stay.
    auto written = rounded(w.values(), type());
    expect_close(parameters.values(), written, 0, "parameters");
  }
}

TEST_P(StepTest, LionOverAFlatShard) {
  const TrainOptions options{.beta2 = 0.99, .weight_decay = 0.1};
  const double rate = 1e-2;
  const auto gradients = random_values(kCount, 1);
  auto master = random_values(kCount, 2), m = random_values(kCount, 3, 0.1F);
  const float scale = 0.75F;
  auto expected = master, expected_m = m;
  for (const TensorRange& range : kRanges) {
    const auto part = [&](std::vector<float>& all) {
      return std::span<float>(all.data() + range.begin, all.data() + range.end);
    };
    exec::lion(part(expected), {gradients.data() + range.begin, gradients.data() + range.end},
               part(expected_m), options, rate, range.decays ? options.weight_decay : 0.0, scale);
  }
  const Lion constants = lion_constants(options.beta1, options.beta2, rate, options.weight_decay);
  const Pieces cut = cut_into_pieces(kRanges);
  for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
    Memory d(type());
    Array &g = d.floats(gradients, shift), &w = d.floats(master, shift), &m_at = d.floats(m, shift);
    Array &pieces = d.raw(cut.pieces), &factor = d.floats({scale});
    Array& parameters = d.values(master, shift);
    const bool half = type() != Type::Float32;
    d.run([&] {
      return lion(nullptr, type(), constants, pieces.at<Piece>(),
                  static_cast<std::int64_t>(cut.pieces.size()), g.at<float>(), factor.at<float>(),
                  w.at<float>(), m_at.at<float>(), half ? parameters.at() : nullptr);
    });
    expect_close(w.values(), expected, 3e-7, "master");
    expect_close(m_at.values(), expected_m, 3e-7, "m");
    if (!half) continue;
    auto written = rounded(w.values(), type());
    expect_close(parameters.values(), written, 0, "parameters");
  }
}

REHEARSE_ALL_TYPES(StepTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
