// SPDX-License-Identifier: Apache-2.0
// What a case says in words counts where its plan has no key for it; a key that the case itself
// calls a default is none.
#include "sim/accuracy/case_words.h"

#include <gtest/gtest.h>

#include <string>

namespace rehearse::sim {
namespace {

// A case whose plan says `plan`, with `words` beside it.
Plan taken(const std::string& plan, const std::string& words) {
  Plan read;
  read.flash_attention = plan.find(R"("flash_attention": false)") == std::string::npos;
  read.attention_kernel = read.flash_attention ? AttentionKernel::Flash2 : AttentionKernel::Unfused;
  const std::string text = R"({"scenario": {"plan": {)" + plan + "}}" + words + "}";
  take_case_words(parse_json(text, "").value(), read);
  return read;
}

TEST(CaseWords, a_dispatcher_that_the_source_names_is_taken) {
  const auto of = [](const std::string& words) { return taken("", words).expert_dispatch; };
  EXPECT_EQ(of(""), ExpertDispatch::AllToAll);
  EXPECT_EQ(of(R"(, "reported": {"experts": {"dispatcher": "allgather"}})"),
            ExpertDispatch::AllGather);
  EXPECT_EQ(of(R"(, "uncertain": ["runtime: FSDP2; DeepEP or HybridEP dispatch"])"),
            ExpertDispatch::Deduplicated);
  EXPECT_EQ(of(R"(, "uncertain": ["dispatcher: not DeepEP"])"), ExpertDispatch::AllToAll);
}

TEST(CaseWords, experts_one_after_another_are_taken) {
  const auto of = [](const std::string& words) {
    return taken("", R"(, "reported": {"experts": {)" + words + "}}").runtime.grouped_experts;
  };
  EXPECT_TRUE(of(""));
  EXPECT_TRUE(of(R"("grouped_gemm": true)"));
  EXPECT_FALSE(of(R"("grouped_gemm": false)"));
}

TEST(CaseWords, a_key_of_the_plan_stands) {
  const Plan plan = taken(R"("expert_dispatch": "all_to_all", "expert_routing": "uniform")",
                          R"(, "uncertain": ["runtime: DeepEP"],
                              "reported": {"experts": {"routing": "balanced by construction"}})");
  EXPECT_EQ(plan.expert_dispatch, ExpertDispatch::AllToAll);
  EXPECT_EQ(plan.expert_routing, ExpertRouting::Uniform);
}

TEST(CaseWords, attention_left_to_the_default_is_the_runtimes) {
  const std::string eager = R"("flash_attention": false)";
  const std::string left = R"(, "uncertain": ["flash_attention: left to the default of X"])";
  EXPECT_TRUE(taken(eager, left).flash_attention);
  EXPECT_EQ(taken(eager, left).attention_kernel, RuntimeTraits{}.attention_kernel);
  EXPECT_FALSE(taken(eager, "").flash_attention);
  EXPECT_FALSE(taken(eager, R"(, "uncertain": ["flash_attention: off"])").flash_attention);
  // Who names the kernel means it.
  EXPECT_FALSE(taken(eager + R"(, "attention_kernel": "unfused")", left).flash_attention);
}

}  // namespace
}  // namespace rehearse::sim
