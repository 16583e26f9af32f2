// SPDX-License-Identifier: Apache-2.0
// Layer kinds as files: expressions, errors, what published layers cost by them, a made-up kind.
#include "schedules/model/kinds/layer_kind.h"

#include <gtest/gtest.h>

#include <numeric>

#include "schedules/model/kinds/mapping.h"

namespace rehearse {
namespace {

using Value = ExpressionValue;

std::string result_of(const std::string& text, const std::vector<Value>& slots = {},
                      const std::vector<std::string>& names = {}) {
  const Result<Expression> read = Expression::read(text, names);
  if (!read) return read.error().message;
  const Result<Value> value = read.value().value(slots);
  return value ? shown(value.value()) : value.error().message;
}

TEST(Expression, HasPrecedenceComparisonsAndChoices) {
  EXPECT_EQ(result_of("1 + 2*3 - 8/4"), "5");
  EXPECT_EQ(result_of("(1 + 2)*3 % 4"), "1");
  EXPECT_EQ(result_of("-2 + 5"), "3");
  EXPECT_EQ(result_of("when(2 < 3 and not 1 == 2, 7, 8)"), "7");
  EXPECT_EQ(result_of("1 >= 1 or 0 > 1"), "1");
  EXPECT_EQ(result_of("ceil(7, 2) + min(3, 1) + max(4, 6)"), "11");
  EXPECT_EQ(result_of("'a' == 'a'"), "1");
  EXPECT_EQ(result_of("null != null"), "0");
  const std::vector<Value> slots{{.kind = Value::Kind::List, .items = {Value::of(3), Value::of(5)}},
                                 Value::of(5)};
  EXPECT_EQ(result_of("x in layers", slots, {"layers", "x"}), "1");
  EXPECT_EQ(result_of("x - 1 in layers", slots, {"layers", "x"}), "0");
  EXPECT_EQ(result_of("ceil(x * share, 4)", {Value::of(5), Value::of(0.5)}, {"x", "share"}), "1");
  EXPECT_EQ(result_of("layers[1] + len(layers)", slots, {"layers", "x"}), "7");
}

TEST(Expression, SaysWhatIsWrong) {
  EXPECT_EQ(result_of("7 / 2"), "\"7 / 2\": 7 / 2 is no whole number below 2^53");
  EXPECT_EQ(result_of("5 % 0"), "\"5 % 0\": 5 % 0 is no whole number below 2^53");
  EXPECT_EQ(result_of("headz * 2", {Value::of(1)}, {"heads"}),
            "\"headz * 2\" knows no headz, the nearest known one is heads");
  EXPECT_EQ(result_of("(1 + 2"), "\"(1 + 2\" lacks a ) before \"\"");
  EXPECT_EQ(result_of("1 +"), "\"1 +\" ends too early");
  EXPECT_EQ(result_of("1 2"), "\"1 2\" ends too early, before \"2\"");
  EXPECT_EQ(result_of("'a' + 1"), "\"'a' + 1\": 'a' and 1 are no numbers");
  std::string deep(300, '(');
  deep.push_back('1');
  EXPECT_NE(result_of(deep).find("nested too deeply"), std::string::npos);
}

TEST(Expression, IsRealDivisionInCosts) {
  const std::vector<std::string> names{"T", "Q"};
  const Expression read = Expression::read("T*3/Q", names).value();
  EXPECT_DOUBLE_EQ(read.number(std::vector<double>{10, 4}), 7.5);
  EXPECT_EQ(read.slots(), (std::vector<std::int32_t>{0, 1}));
}

BoundKind bound(const std::string& kind,
                const std::vector<std::pair<std::string, std::int64_t>>& symbols) {
  BoundKind made{.kind = layer_kind(kind).value()};
  made.values.assign(made.kind->symbols.size(), 0);
  for (const auto& [name, value] : symbols) {
    made.values[static_cast<std::size_t>(made.kind->symbol(name))] = value;
  }
  return made;
}

struct Costs {
  double flops = 0, bytes = 0;
};
Costs costs_of(const BoundKind& of, const std::vector<KindNode>& nodes, const std::string& name,
               const KindPlan& plan) {
  const std::vector<double> slots = slots_of(of, plan);
  for (const KindNode& node : nodes) {
    if (node.name != name) continue;
    return {node.flops.given() ? node.flops.number(slots) : 0,
            node.bytes.given() ? node.bytes.number(slots) : 0};
  }
  ADD_FAILURE() << name;
  return {};
}
double saved_per_token(const BoundKind& of, const KindPlan& plan) {
  const std::vector<double> slots = slots_of(of, plan);
  double bytes = 0;
  for (const KindRow& row : of.kind->saved) bytes += row.bytes.number(slots);
  return bytes;
}
std::int64_t parameters(const BoundKind& of) {
  return elements_of(parts_of(of));
}

// A Mamba layer of Nemotron 3 Nano, 8,192 tokens in one sequence: by hand from the shapes, and from
// the kernels of state-spaces/mamba ops/triton/ssd_combined.py.
TEST(LayerKind, CountsAMambaLayerToTheByte) {
  const BoundKind layer = bound("mamba2", {{"h", 2688},
                                           {"H", 64},
                                           {"P", 64},
                                           {"N", 128},
                                           {"G", 8},
                                           {"W", 4},
                                           {"Q", 128},
                                           {"conv_bias", 1},
                                           {"normed", 1}});
  EXPECT_EQ(parameters(layer), 38'744'896 - 2688);  // without the block's norm
  const KindPlan plan{.tokens = 8192, .sequence = 8192};
  const auto forward = [&](const std::string& name) {
    return costs_of(layer, layer.kind->forward, name, plan);
  };
  EXPECT_EQ(forward("causal_conv1d").flops, 402'653'184);
  EXPECT_EQ(forward("causal_conv1d").bytes, 201'326'592);
  EXPECT_EQ(forward("ssd_chunk_cumsum").bytes, 5'242'880);
  EXPECT_EQ(forward("ssd_chunk_state").flops, 8'589'934'592);
  EXPECT_EQ(forward("ssd_chunk_state").bytes, 222'298'112);
  EXPECT_EQ(forward("ssd_state_passing").flops, 67'108'864);
  EXPECT_EQ(forward("ssd_state_passing").bytes, 201'326'592);
  EXPECT_EQ(forward("ssd_bmm").flops, 2'147'483'648);
  EXPECT_EQ(forward("ssd_bmm").bytes, 67'108'864);
  EXPECT_EQ(forward("ssd_chunk_scan").flops, 12'884'901'888);
  EXPECT_EQ(forward("ssd_chunk_scan").bytes, 390'070'272);
  EXPECT_EQ(forward("gated_group_norm").bytes, 134'217'728);
  EXPECT_EQ(forward_flops(layer, plan), 658'270'846'976);
  EXPECT_EQ(costs_of(layer, layer.kind->backward, "ssd_backward", plan).flops, 62'277'025'792);
  EXPECT_EQ(saved_per_token(layer, plan), 45'216);
  // At cp 2 half of what a rank holds is sent, tokens for heads.
  const KindPlan halved{.tokens = 4096, .sequence = 8192, .context = 2};
  EXPECT_EQ(costs_of(layer, layer.kind->forward, "all_to_all cp", halved).bytes, 84'410'368);
}

// A gated delta layer of Qwen3-Next, the same tokens.
TEST(LayerKind, CountsADeltaLayerToTheByte) {
  const BoundKind layer =
      bound("gated_delta_net",
            {{"h", 2048}, {"Hk", 16}, {"Hv", 32}, {"K", 128}, {"V", 128}, {"W", 4}, {"C", 64}});
  const KindPlan plan{.tokens = 8192, .sequence = 8192};
  const auto forward = [&](const std::string& name) {
    return costs_of(layer, layer.kind->forward, name, plan).flops;
  };
  EXPECT_EQ(forward("causal_conv1d"), 536'870'912);
  EXPECT_NEAR(forward("gdr_intra"), 13'600'729'770, 1);
  EXPECT_EQ(forward("gdr_state"), 17'179'869'184);
  EXPECT_EQ(forward("gdr_out"), 17'179'869'184);
  EXPECT_EQ(costs_of(layer, layer.kind->backward, "gdr_backward", plan).flops, 137'438'953'472);
  EXPECT_EQ(saved_per_token(layer, plan), 86'720);
}

// Below about 12,800 tokens the sparse core of DeepSeek-V3.2 costs more than the dense one would.
TEST(LayerKind, ASparseCoreCostsWhatItsKeysCost) {
  const BoundKind layer = bound("dsa", {{"h", 7168},
                                        {"a", 128},
                                        {"q", 1536},
                                        {"r", 512},
                                        {"nope", 128},
                                        {"rope", 64},
                                        {"V", 128},
                                        {"Hi", 64},
                                        {"Di", 128},
                                        {"top", 2048},
                                        {"own", 1}});
  const auto per_token = [&](std::int64_t s) {
    const KindPlan plan{.tokens = s, .sequence = s};
    return costs_of(layer, layer.kind->forward, "sparse core", plan).flops / static_cast<double>(s);
  };
  const double long_ago = 2.0 * 2048 * 128 * 1088;
  EXPECT_NEAR(per_token(1 << 20) / long_ago, 1, 0.01);
  const auto dense = [](double s) { return 2 * (s / 2) * 128 * 320; };
  EXPECT_GT(per_token(12000), dense(12000));
  EXPECT_LT(per_token(14000), dense(14000));
}

TEST(LayerKind, SaysWhichPlansItCannotMeet) {
  const BoundKind layer = bound(
      "mamba2", {{"h", 2688}, {"H", 64}, {"P", 64}, {"N", 128}, {"G", 8}, {"W", 4}, {"Q", 128}});
  EXPECT_EQ(unmet_need(layer, {.tensor = 8}), "");
  EXPECT_EQ(unmet_need(layer, {.tensor = 8, .context = 2}), "");
  EXPECT_EQ(unmet_need(layer, {.tensor = 16}), "G % tp == 0, with G = 8, tp = 16");
  EXPECT_EQ(unmet_need(layer, {.tensor = 3}), "H % (tp*cp) == 0, with H = 64, tp = 3, cp = 1");
}

Result<const LayerKind*> parsed(const std::string& text) {
  return parse_layer_kind(parse_json(text, "made.json").value(), "made.json");
}

// A kind that nobody has heard of, from its text to parts and costs.
TEST(LayerKind, AMadeUpOneIsCountedCutAndPriced) {
  const Result<const LayerKind*> kind = parsed(R"json({"schema": "layer/1", "kind": "made_up",
    "symbols": {"h": "", "f": "", "bias": ""}, "otherwise": {"bias": "0"},
    "let": {"half": "f/2"}, "needs": ["f % tp == 0"],
    "tensors": [
      {"name": "down", "shape": ["f", "h"], "blocks": ["half", "half"], "cut": "rows",
       "use": "product", "bias": "bias"},
      {"name": "up", "shape": ["h", "half"], "cut": "columns", "use": "product"},
      {"name": "scale", "parameter": true, "shape": ["h"], "cut": "none", "use": "vector"}],
    "forward": [
      {"op": "product", "tensor": "down", "collective": "gather_sequence"},
      {"op": "kernel", "name": "fold", "class": "scan", "flops": "T*f", "bytes": "2*T*f/tp",
       "serial": "ceil(s, 64)"},
      {"op": "product", "tensor": "up", "collective": "scatter_sequence"}],
    "saved": [{"name": "folded", "bytes": "e*half", "cut": "tp"}]})json");
  ASSERT_TRUE(kind) << kind.error().message;
  BoundKind layer{.kind = kind.value(), .values = {16, 8, 1}};
  ASSERT_TRUE(check_bound(layer));
  const std::vector<ModelPart> parts = parts_of(layer);
  ASSERT_EQ(parts.size(), 4u);
  EXPECT_EQ(parts[0].blocks[1], 4);
  EXPECT_TRUE(parts[1].bias);
  EXPECT_EQ(elements_of(parts), 8 * 16 + 8 + 16 * 4 + 16);
  EXPECT_EQ(forward_flops(layer, {.tokens = 10}), 2 * 10 * (8 * 16 + 16 * 4) + 10 * 8);
  EXPECT_EQ(unmet_need(layer, {.tensor = 3}), "f % tp == 0, with f = 8, tp = 3");
  layer.values[1] = 7;  // half of it is no whole number
  EXPECT_FALSE(check_bound(layer));
}

TEST(LayerKind, ErrorsNameFilePlaceAndWhatIsWrong) {
  const auto error = [](const std::string& members) {
    const Result<const LayerKind*> kind =
        parsed(R"({"schema": "layer/1", "kind": "x", "symbols": {"h": ""}, )" + members + "}");
    return kind ? "" : kind.error().message;
  };
  EXPECT_EQ(error(R"("tensors": [{"name": "w", "shape": ["hh"], "cut": "none", "use": "norm"}])"),
            "made.json:1: tensors.w.shape: \"hh\" knows no hh, the nearest known one is h");
  EXPECT_EQ(
      error(R"("tensors": [{"name": "w", "shape": ["h"], "cut": "sideways", "use": "norm"}])"),
      "made.json:1: tensors[0].cut: \"sideways\" is not one of none, rows, columns, experts, "
      "vocabulary");
  EXPECT_EQ(error(R"("forward": [{"op": "product", "tensor": "w"}])"),
            "made.json:1: nodes.w: is no tensor whose use is product");
  EXPECT_EQ(error(R"("forward": [{"op": "kernel", "name": "k", "class": "scan"}])"),
            "made.json:1: nodes.k: a kernel needs a class and bytes");
  EXPECT_EQ(error(R"("otherwise": {"g": "1"})"), "made.json:1: otherwise.g: is no symbol");
}

}  // namespace
}  // namespace rehearse
