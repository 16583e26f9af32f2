// SPDX-License-Identifier: Apache-2.0
// The router's choice is the CPU's, in every form; its weights and gradients are within a rounding.
#include <algorithm>

#include "exec/cpu/kernels/table.h"
#include "tests/cuda/memory.h"

namespace rehearse::exec::cuda::testing {
namespace {

std::size_t size(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

struct Form {
  const char* name;
  RouteShape shape;
  bool corrected = false;
};
// Mixtral's, Qwen3's, DeepSeek-V2's (a group's score is its largest), V3's, Llama 4's.
const Form kForms[] = {
    {"softmax", {.tokens = 21, .experts = 8, .per_token = 2, .normalised = true}},
    {"many", {.tokens = 5, .experts = 200, .per_token = 40}},
    {"grouped",
     {.tokens = 21, .experts = 24, .per_token = 3, .scale = 16, .groups = 6, .kept_groups = 2}},
    {"corrected",
     {.tokens = 21,
      .experts = 32,
      .per_token = 4,
      .normalised = true,
      .sigmoid = true,
      .scale = 2.5F,
      .groups = 8,
      .kept_groups = 4,
      .group_best = 2},
     true},
    {"one", {.tokens = 21, .experts = 16, .per_token = 1, .sigmoid = true}},
};

class ExpertRouterTest : public KernelTest {};

TEST_P(ExpertRouterTest, ChoosesAsTheCpuAndItsGradientsFollow) {
  for (const Form& form : kForms) {
    for (const float auxiliary : {0.0F, 0.01F}) {
      SCOPED_TRACE(form.name);
      RouteShape s = form.shape;
      s.auxiliary = auxiliary;
      s.z = auxiliary;
      auto logits = random_values(s.tokens * s.experts, 1);
      // Ties go to the lower expert.
      for (std::int64_t e = 0; e < s.experts; ++e) logits[size(e)] = e % 2 == 0 ? 0.5F : -1.0F;
      auto correction = random_values(s.experts, 2, 0.2F);
      const auto d_weights = random_values(s.tokens * s.per_token, 3);
      std::vector<std::int32_t> chosen(size(s.tokens * s.per_token));
      std::vector<float> weights(chosen.size()), scores(logits.size()), logsum(size(s.tokens));
      std::vector<float> d_logits(logits.size());
      RouteShape here = s;
      here.correction = form.corrected ? correction.data() : nullptr;
      kernels().route(here, logits.data(), chosen.data(), weights.data(), scores.data(),
                      logsum.data());
      std::vector<float> counts(size(s.experts), 3.0F);
      kernels().count_chosen(s.tokens * s.per_token, s.experts, chosen.data(), counts.data());
      kernels().route_backward(here, d_weights.data(), chosen.data(), weights.data(), scores.data(),
                               logsum.data(), counts.data(), d_logits.data());
      Memory m(type());
      Array &l = m.floats(logits), &c = m.floats(correction), &dw = m.floats(d_weights);
      Array& ch = m.raw(std::vector<std::int32_t>(chosen.size(), -7));
      Array &w = m.empty_floats(s.tokens * s.per_token), &sc = m.empty_floats(s.tokens * s.experts);
      Array &ls = m.empty_floats(s.tokens), &dl = m.empty(s.tokens * s.experts);
      Array& co = m.floats(std::vector<float>(counts.size(), 3.0F));
      m.run([&] {
        RouteShape there = s;
        there.correction = form.corrected ? c.at<float>() : nullptr;
        int status = route(nullptr, type(), there, l.at<float>(), ch.at<std::int32_t>(),
                           w.at<float>(), sc.at<float>(), ls.at<float>());
        if (status != 0) return status;
        status = count_chosen(nullptr, type(), s.tokens * s.per_token, s.experts,
                              ch.at<std::int32_t>(), co.at<float>());
        if (status != 0) return status;
        return route_backward(nullptr, type(), there, dw.at<float>(), ch.at<std::int32_t>(),
                              w.at<float>(), sc.at<float>(), ls.at<float>(), co.at<float>(),
                              dl.at());
      });
      EXPECT_EQ(ch.as<std::int32_t>(), chosen);
      expect_close(co.values(), counts, 0, "counts");
      expect_close(w.values(), weights, 1e-6, "weights");
      expect_close(sc.values(), scores, 1e-6, "scores");
      expect_close(ls.values(), logsum, 1e-6, "logsum");
      expect_close(dl.values(), d_logits, tolerance(), "d_logits");
    }
  }
}

// Logits that are no numbers choose some expert: memory stays whole, and the loss will say it.
TEST_P(ExpertRouterTest, NoNumbersChooseExpertsThatThereAre) {
  const RouteShape s{.tokens = 5, .experts = 8, .per_token = 2, .normalised = true};
  Memory m(type());
  Array& l = m.floats(std::vector<float>(40, NAN));
  Array& ch = m.raw(std::vector<std::int32_t>(10, -7));
  Array &w = m.empty_floats(10), &sc = m.empty_floats(40), &ls = m.empty_floats(5);
  m.run([&] {
    return route(nullptr, type(), s, l.at<float>(), ch.at<std::int32_t>(), w.at<float>(),
                 sc.at<float>(), ls.at<float>());
  });
  for (const std::int32_t expert : ch.as<std::int32_t>()) {
    EXPECT_TRUE(expert >= 0 && expert < 8) << expert;
  }
}

REHEARSE_ALL_TYPES(ExpertRouterTest);

}  // namespace
}  // namespace rehearse::exec::cuda::testing
