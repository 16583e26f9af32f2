// SPDX-License-Identifier: Apache-2.0
// The rate of every place that drops: the plan's, the model's, or the runtime's.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "tests/schedules/scenario/plan_text.h"

namespace rehearse {
namespace {

using namespace plan_text;

TEST(PlanDropout, IsThePlansThenTheModelsThenTheKernels) {
  const std::string silent = kTiny;
  const std::string says = R"({"model_type": "gpt2", "resid_pdrop": 0.2})";
  EXPECT_EQ(read(R"("flash_attention": false)", "", silent).plan.dropout, 0.1);
  EXPECT_EQ(read("", "", silent).plan.dropout, 0);
  EXPECT_EQ(read("", "", says).plan.dropout, 0.2);
  EXPECT_EQ(read(R"("dropout": 0.3)", "", says).plan.dropout, 0.3);
  EXPECT_EQ(read(R"("dropout": 0, "flash_attention": false)", "", says).plan.dropout, 0);
}

// Each place has the rate that the model file says for it; the plan's key is one rate for all.
TEST(PlanDropout, HasARateForEachPlaceUnderEveryRuntime) {
  const std::string says =
      R"({"model_type": "gpt2", "resid_pdrop": 0, "attn_pdrop": 0.2, "embd_pdrop": 0})";
  for (const char* runtime : {"megatron_2023", "fsdp", "rehearse"}) {
    const auto rates = [&](const std::string& plan, const std::string& model) {
      return read(plan, "", model, {.runtime = runtime}).plan.dropouts;
    };
    EXPECT_EQ(rates("", says), DropoutRates{.attention = 0.2}) << runtime;
    EXPECT_EQ(rates(R"("dropout": 0.3)", says), (DropoutRates{0.3, 0.3, 0.3})) << runtime;
  }
  const auto unsaid = read(R"("flash_attention": false)", "", kTiny).plan.dropouts;
  EXPECT_EQ(unsaid, (DropoutRates{0.1, 0.1, 0.1}));
}

// A rate of 0 is said, of its own place alone: the other two have what a file that says nothing
// has. That is a tenth where attention is no one kernel, open (-1) where it is, and nothing under
// our executor. A Llama's file that says its attention's rate has said all.
TEST(PlanDropout, OfZeroIsTheRateOfItsPlaceAlone) {
  const auto rates = [](const std::string& model, const char* runtime) {
    return read("", "", model, {.runtime = runtime}).plan.dropouts;
  };
  for (const auto& [runtime, other] :
       {std::pair{"megatron_2023", 0.1}, std::pair{"megatron", -1.0}, std::pair{"rehearse", 0.0}}) {
    EXPECT_EQ(rates(R"({"model_type": "gpt2", "resid_pdrop": 0})", runtime),
              (DropoutRates{0, other, other}));
    EXPECT_EQ(rates(R"({"model_type": "gpt2", "attn_pdrop": 0})", runtime),
              (DropoutRates{other, 0, other}));
    EXPECT_EQ(rates(R"({"model_type": "gpt2", "embd_pdrop": 0})", runtime),
              (DropoutRates{other, other, 0}));
    EXPECT_EQ(rates(R"({"model_type": "gpt2"})", runtime), (DropoutRates{other, other, other}));
    EXPECT_EQ(rates(R"({"model_type": "llama", "attention_dropout": 0})", runtime), DropoutRates{});
    const double silent = std::max(other, 0.0);
    EXPECT_EQ(rates(R"({"model_type": "llama"})", runtime), (DropoutRates{silent, silent, silent}));
  }
  for (const char* model : {"llama", "gpt2"}) {  // the default of Megatron-LM's arguments
    EXPECT_EQ(rates(R"({"model_type": ")" + std::string(model) + R"("})", "megatron_lm").residual,
              0.1);
  }
}

// An open rate is not written as 0, which would be read back as one that is said.
TEST(PlanDropout, IsWrittenWhereItIsSaid) {
  EXPECT_EQ(plan_json(plan(""), 0).find("\"dropout\""), std::string::npos);
  EXPECT_NE(plan_json(plan(R"("dropout": 0)"), 0).find("\"dropout\": 0"), std::string::npos);
}

TEST(PlanDropout, OfRehearseIsThatOfTheResidual) {
  const std::string says = R"({"model_type": "gpt2", "resid_pdrop": 0.2})";
  const Scenario asked = read("", "", says, {.runtime = "rehearse"});
  EXPECT_EQ(asked.plan.dropout, 0.2);
  EXPECT_EQ(asked.plan.dropouts, DropoutRates{.residual = 0.2});
  EXPECT_EQ(read(R"("flash_attention": false)", "", kTiny, {.runtime = "rehearse"}).plan.dropout,
            0);  // its attention is fused whatever the plan says
}

}  // namespace
}  // namespace rehearse
