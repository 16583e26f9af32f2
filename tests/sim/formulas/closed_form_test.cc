// SPDX-License-Identifier: Apache-2.0
// The papers' numbers. Every expectation is printed in the paper or derivable from the comment.
#include "sim/formulas/closed_form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace rehearse::sim {
namespace {

constexpr double kGB = 1e9;
constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kMiB = 1024.0 * 1024;

TEST(ZeroTable, GivesThePapersModelStatesOf7Point5BOn64Ranks) {
  EXPECT_DOUBLE_EQ(zero_model_state_bytes(7.5e9, 64, 0) / kGB, 120);
  EXPECT_NEAR(zero_model_state_bytes(7.5e9, 64, 1) / kGB, 31.4, 0.05);
  EXPECT_NEAR(zero_model_state_bytes(7.5e9, 64, 2) / kGB, 16.6, 0.05);
  EXPECT_NEAR(zero_model_state_bytes(7.5e9, 64, 3) / kGB, 1.88, 0.005);
}

TEST(ZeroTable, GivesTheOtherRowsOfTable1) {
  const double expected[4][3] = {// Nd = 4, 16, 256, 1024; stages 1 to 3, GB as printed
                                 {52.5, 41.25, 30},
                                 {35.6, 21.6, 7.5},
                                 {30.4, 15.4, .47},
                                 {30.1, 15.1, .12}};
  const std::int32_t replicas[4] = {4, 16, 256, 1024};
  for (int row = 0; row < 4; ++row) {
    for (std::int32_t stage = 1; stage <= 3; ++stage) {
      const double printed = expected[row][stage - 1];
      EXPECT_NEAR(zero_model_state_bytes(7.5e9, replicas[row], stage) / kGB, printed,
                  printed < 1 ? 0.005 : 0.05)
          << "Nd " << replicas[row] << " stage " << stage;
    }
  }
  for (std::int32_t stage = 0; stage <= 3; ++stage) {
    EXPECT_DOUBLE_EQ(zero_model_state_bytes(7.5e9, 1, stage) / kGB, 120);
  }
}

// A validation case of Korthikanti et al., with its model's shape.
struct FormulaCase {
  std::string id;
  ActivationShape shape;
  double layers = 0, positions = 0, chunks = 1;
  Recompute recompute;
  bool sequence_parallel = false;
  nlohmann::json measured;
};

std::vector<FormulaCase> formula_cases() {
  std::ifstream in("tests/data/validation/korthikanti_seqsel.json");
  const nlohmann::json file = nlohmann::json::parse(in, nullptr, false);
  std::vector<FormulaCase> cases;
  if (file.is_discarded()) return cases;
  for (const nlohmann::json& row : file["cases"]) {
    if (row.value("kind", "") != "formula") continue;
    const nlohmann::json& plan = row["scenario"]["plan"];
    const nlohmann::json& model = row["scenario"]["model"];
    const auto of = [&](const char* a, const char* b) {
      return model.contains(a) ? model[a].get<double>() : model[b].get<double>();
    };
    FormulaCase c;
    c.id = row["id"];
    c.shape = {plan["sequence_length"], plan["micro_batch"], of("hidden_size", "n_embd"),
               of("num_attention_heads", "n_head"), plan["tensor_parallel"]};
    c.layers = of("num_hidden_layers", "n_layer");
    c.positions = plan["pipeline_parallel"];
    c.chunks = plan.value("virtual_stages", 1);
    const std::string recompute = plan["recompute"];
    c.recompute = recompute == "full"        ? Recompute::full()
                  : recompute == "selective" ? Recompute::selective()
                                             : Recompute{};
    c.sequence_parallel = plan["sequence_parallel"];
    c.measured = row["measured"];
    cases.push_back(c);
  }
  return cases;
}

TEST(Korthikanti, GivesFigure1ToATenthOfAPercentAndFigure7AsReadOffThePlot) {
  int bytes = 0, fractions = 0;
  for (const FormulaCase& c : formula_cases()) {
    if (c.measured.contains("activation_bytes")) {
      const double ours = first_position_activation_bytes(c.shape, c.recompute, c.sequence_parallel,
                                                          c.layers, c.positions, c.chunks);
      EXPECT_NEAR(ours / c.measured["activation_bytes"].get<double>(), 1, 0.001) << c.id;
      const double states =
          figure1_state_bytes(c.shape.hidden, c.layers, c.shape.tensor_parallel, c.positions);
      EXPECT_NEAR(states / c.measured["parameter_gradient_optimizer_bytes"].get<double>(), 1, 0.001)
          << c.id;
      ++bytes;
    }
    if (c.measured.contains("activation_fraction_of_tp_baseline")) {
      const double fraction = layer_activation_bytes(c.shape, c.recompute, c.sequence_parallel) /
                              layer_activation_bytes(c.shape, Recompute{}, false);
      const double read = c.measured["activation_fraction_of_tp_baseline"];
      EXPECT_NEAR(fraction / read, 1, 0.015) << c.id;
      ++fractions;
    }
  }
  EXPECT_EQ(bytes, 8);
  EXPECT_EQ(fractions, 20);
}

TEST(Korthikanti, GivesTheFiveEquations) {
  // GPT-3: s 2048, b 1, h 12288, a 96, t 8; sbh = 25,165,824; 5as/h = 80.
  const ActivationShape gpt3{2048, 1, 12288, 96, 8};
  ActivationShape alone = gpt3;
  alone.tensor_parallel = 1;
  const double sbh = 25165824;
  EXPECT_DOUBLE_EQ(layer_activation_bytes(alone, Recompute{}, false), sbh * 114);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(gpt3, Recompute{}, false), sbh * (10 + 13));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(gpt3, Recompute{}, true), sbh * 114 / 8);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(gpt3, Recompute::selective(), true), sbh * 34 / 8);
  EXPECT_DOUBLE_EQ(layer_activation_bytes(gpt3, Recompute::full(), false), sbh * 2);
  // One GPU: sequence parallelism changes nothing.
  EXPECT_DOUBLE_EQ(layer_activation_bytes(alone, Recompute{}, true), sbh * 114);
}

TEST(Korthikanti, GivesTheWorkedBytesPerLayerAndPerRank) {
  struct Row {
    ActivationShape shape;
    double layers, p, v, layer_mib[3], total_gib[3];
  };
  const Recompute none = Recompute{}, selective = Recompute::selective();
  const Row rows[] = {
      {{2048, 1, 12288, 96, 8}, 96, 8, 3, {552, 342, 102}, {66.84, 41.41, 12.35}},
      {{2048, 1, 20480, 128, 8}, 105, 35, 3, {840, 490, 170}, {114.0, 66.5, 23.1}},
      {{2048, 1, 25600, 160, 8}, 128, 64, 1, {1050, 612.5, 212.5}, {131.3, 76.6, 26.6}}};
  for (const Row& row : rows) {
    const double layer[3] = {layer_activation_bytes(row.shape, none, false),
                             layer_activation_bytes(row.shape, none, true),
                             layer_activation_bytes(row.shape, selective, true)};
    for (int i = 0; i < 3; ++i) {
      EXPECT_NEAR(layer[i] / kMiB, row.layer_mib[i], row.layer_mib[i] * 1e-3);
      const double total = layer[i] * row.layers * interleave_factor(row.p, row.v) / kGiB;
      EXPECT_NEAR(total, row.total_gib[i], 0.06);  // the page prints one digit for the large ones
    }
  }
  EXPECT_NEAR(interleave_factor(8, 3), 1.2917, 5e-5);
  EXPECT_NEAR(interleave_factor(35, 3), 1.3238, 5e-5);
  EXPECT_DOUBLE_EQ(interleave_factor(64, 1), 1);
  // Appendix B: 2.73 for the 530B model.
  EXPECT_NEAR(output_tensor_bytes({2048, 1, 20480, 128, 8}, 35) / kGiB, 2.73, 0.005);
  // Section 4.3, by hand: p = 1, s 2, b 1, h 4, t 2, V 8: sbh/t = 4; 4 * 1 + 4 * 4 * 3 = 52.
  EXPECT_DOUBLE_EQ(extra_activation_bytes({2, 1, 4, 1, 2}, 1, 8), 52);
  EXPECT_DOUBLE_EQ(extra_activation_bytes({2, 1, 4, 1, 2}, 3, 8), 12);
}

TEST(Flops, FollowNarayananKorthikantiAndPalm) {
  // GPT-3 175B (L 96, h 12288, s 2048, V 51200), B = 64 and 530B (L 105, h 20480), B = 280.
  const double model = korthikanti_model_flops(64, 2048, 96, 12288, 51200);
  EXPECT_NEAR(model, 1.4109e17, 0.00005e17);
  const double recomputed = narayanan_flops(64, 2048, 96, 12288, 51200);
  EXPECT_NEAR(recomputed, 1.8796e17, 0.00005e17);
  EXPECT_NEAR(recomputed / model, 1.3322, 0.00005);
  EXPECT_NEAR(korthikanti_model_flops(280, 2048, 105, 20480, 51200), 1.8522e18, 0.00005e18);
  // Four forward passes of the layers and three of the logits: 8 B s L (12 h^2 + 2 s h) + 6 B s h
  // V.
  const double layers = 64.0 * 2048 * 96 * (24.0 * 12288 * 12288 + 4.0 * 2048 * 12288);
  EXPECT_NEAR(recomputed / (4 * layers + 6.0 * 64 * 2048 * 12288 * 51200), 1, 1e-12);
  // Selective recomputation: +0.90 % and +0.55 %; the paper's equation +2.69 % and +1.64 %.
  const auto more = [](double B, double L, double h, bool paper) {
    return selective_hardware_flops(B, 2048, L, h, 51200, paper) /
               korthikanti_model_flops(B, 2048, L, h, 51200) -
           1;
  };
  EXPECT_NEAR(more(64, 96, 12288, false), .0090, .00005);
  EXPECT_NEAR(more(280, 105, 20480, false), .0055, .00005);
  EXPECT_NEAR(more(64, 96, 12288, true), .0269, .00005);
  EXPECT_NEAR(more(280, 105, 20480, true), .0164, .00006);
  // PaLM 540B: 238.3k tokens/s on 6144 TPU v4 of 275 TFLOP/s = 46.2 % (118 layers, 48 heads of
  // 256).
  EXPECT_NEAR(palm_mfu(238.3e3, 540.35e9, 118, 48, 256, 2048, 6144 * 275e12), .462, .0005);
}

TEST(Pipelines, HaveThePapersBubbles) {
  const PositionTimes equal;
  const auto overhead = [&](const char* name, int p, int m, int v) {
    return *pipeline_bubble_overhead(name, p, m, v, equal);
  };
  EXPECT_DOUBLE_EQ(overhead("1f1b", 8, 64, 1), 7.0 / 64);
  EXPECT_NEAR(overhead("interleaved_1f1b", 8, 64, 3), .0365, .00005);
  EXPECT_DOUBLE_EQ(overhead("gpipe", 4, 8, 1), .375);
  EXPECT_DOUBLE_EQ(overhead("interleaved_1f1b", 4, 8, 2), .1875);
  EXPECT_DOUBLE_EQ(overhead("zb_h1", 4, 8, 1), 3.0 / 24);  // (p-1)/(3m)
  // Naive model parallelism on 4 GPUs idles three quarters: overhead 3.
  EXPECT_DOUBLE_EQ(overhead("naive", 4, 8, 1), 3);
  EXPECT_FALSE(pipeline_bubble("zb_2p", 4, 1, equal).has_value());
}

TEST(Pipelines, GiveThePrintedRatiosOfZeroBubblesTables) {
  std::ifstream in("tests/data/validation/zero_bubble_bubbles.json");
  const nlohmann::json file = nlohmann::json::parse(in, nullptr, false);
  ASSERT_FALSE(file.is_discarded());
  int checked = 0;
  for (const nlohmann::json& row : file["cases"]) {
    const nlohmann::json& s = row["schedule"];
    const PositionTimes times{s["times"]["F"], s["times"]["I"], s["times"]["W"]};
    const std::string name = s["name"];
    const std::int32_t m = s["microbatches"];
    const std::optional<double> span =
        pipeline_span(name, s["stages"], m, s["chunks"], times, s["times"]["comm"]);
    if (!span) continue;
    const double ratio = 1 - m * times.sum() / *span;
    const double tolerance = name == "interleaved_1f1b" ? .004 : .0001;
    EXPECT_NEAR(ratio, row["measured"]["bubble_ratio"].get<double>(), tolerance) << row["id"];
    ++checked;
  }
  EXPECT_EQ(checked, 48);  // 12 settings of four schedules
}

TEST(Pipelines, KeepAsManyActivationsAsThePapersSay) {
  EXPECT_EQ(peak_activations("1f1b", 0, 4, 8, 1), 4);
  EXPECT_EQ(peak_activations("1f1b", 3, 4, 8, 1), 1);
  EXPECT_EQ(peak_activations("1f1b", 0, 4, 2, 1), 2);
  EXPECT_EQ(peak_activations("eager_1f1b", 0, 4, 8, 1), 7);
  EXPECT_EQ(peak_activations("gpipe", 2, 4, 8, 1), 8);
  EXPECT_EQ(peak_activations("interleaved_1f1b", 0, 8, 64, 3), 31);  // vp + p - 1
  EXPECT_EQ(peak_activations("zb_h1", 3, 4, 8, 1), 4);
  // Interleaved, in stages: p (1 + (p-1)/(pv)), Korthikanti's factor.
  EXPECT_DOUBLE_EQ(*peak_activations("interleaved_1f1b", 0, 8, 64, 3) / 3.0,
                   8 * interleave_factor(8, 3));
  EXPECT_FALSE(peak_activations("dualpipe", 0, 4, 8, 1).has_value());
}

TEST(Rings, FollowTheAlphaBetaForms) {
  // 8 ranks, 800 B at 100 B/s: 14 steps of 1 s, 2 * 7/8 * 8 s.
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(800, 8, 1, 100), 14 + 14);
  EXPECT_DOUBLE_EQ(ring_all_gather_seconds(800, 8, 1, 100), 7 + 7);
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(800, 1, 1, 100), 0);
  // n = 6, a = 1, S/B = 4: (2 + 2)^2; the same from C = sqrt(4 * 4 / 1) = 4 chunks: (4 + 4)(1 + 1).
  EXPECT_DOUBLE_EQ(ring_broadcast_seconds(400, 6, 1, 100), 16);
  // 400 B of weights and of gradients, 7/8 of 800 B of outputs and back, at 100 B/s.
  EXPECT_DOUBLE_EQ(through_root_seconds(400, 400, 800, 8, 100), 4 + 4 + 14);
}

TEST(LongRuns, LoseWhatYoungAndDalySay) {
  // 16,384 GPUs of a GPU-level MTBF of 50.7 kh: job MTBF 3.09 h; save 2 min, restart 10 min:
  // every 27 min, lost 7.3 + 7.3 + 5.4 %.
  const double mtbf = 50.7e3 / 16384;  // h
  EXPECT_NEAR(mtbf, 3.09, 0.005);
  const double interval = checkpoint_interval(2.0 / 60, mtbf);
  EXPECT_NEAR(interval * 60, 27, 0.5);
  EXPECT_NEAR(goodput_loss(interval, 2.0 / 60, 10.0 / 60, mtbf), .200, .001);
}

}  // namespace
}  // namespace rehearse::sim
