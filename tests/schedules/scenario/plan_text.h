// SPDX-License-Identifier: Apache-2.0
// Plans of a small model on nodes of eight GPUs, read from the text of their keys.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "schedules/scenario/scenario.h"

namespace rehearse::plan_text {

inline const char* const kTiny =
    R"({"model_type": "gpt2", "n_embd": 64, "n_layer": 12, "n_head": 8, "n_positions": 1024, "vocab_size": 50257})";

inline std::string scenario_text(const std::string& plan, const std::string& gpus,
                                 const std::string& model) {
  return R"({"model": )" + model + R"(, "cluster": "dgx-a100-80gb")" +
         (gpus.empty() ? "" : R"(, "gpus": )" + gpus) + R"(, "plan": {)" + plan + "}}";
}

inline Scenario read(const std::string& plan, const std::string& gpus = "",
                     const std::string& model = kTiny, const ScenarioOptions& options = {}) {
  Result<Scenario> scenario =
      parse_scenario(scenario_text(plan, gpus, model), "x.json", 1, options);
  EXPECT_TRUE(scenario) << (scenario ? "" : scenario.error().message);
  return scenario ? std::move(scenario).value() : Scenario{};
}

inline Plan plan(const std::string& text, const std::string& gpus = "") {
  return read(text, gpus).plan;
}

inline std::string error_of(const std::string& text, const std::string& gpus = "") {
  const Result<Scenario> scenario =
      parse_scenario(scenario_text(text, gpus, kTiny), "x.json", 1, {});
  return scenario ? "" : scenario.error().message;
}

}  // namespace rehearse::plan_text
