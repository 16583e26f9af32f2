// SPDX-License-Identifier: Apache-2.0
// A layout's scenario, lowered, and its training on the CUDA backend that was linked.
#pragma once

#include <functional>

#include "exec/cuda/make.h"
#include "schedules/ir/listing.h"
#include "tests/cuda_double/device.h"
#include "tests/exec/step/layout_case.h"

namespace rehearse::exec {

using Keys = std::vector<std::string>;

struct Prepared {
  Scenario scenario;
  Plan plan;
  Schedule schedule;
};

inline Prepared prepare(Family family, const Keys& keys) {
  Prepared out;
  Result<Scenario> scenario = layout_scenario(family, keys);
  EXPECT_TRUE(scenario) << scenario.error().message;
  out.scenario = std::move(scenario).value();
  out.plan = out.scenario.plan;
  Result<Schedule> schedule = lower_for_run(out.scenario.model, out.plan);
  EXPECT_TRUE(schedule) << schedule.error().message;
  out.schedule = std::move(schedule).value();
  return out;
}

// REQUIRES: `p` outlives the backend.
inline CudaOptions cuda_options(const Prepared& p, double timeout_s = 120) {
  return {.type = element_of(p.plan.precision.compute),
          .timeout_s = timeout_s,
          .label = [&p](OpId op) { return op_label(p.schedule, op); }};
}

// All ranks in this process. wrap: what the backend becomes before it is used; begin_scale: of
// fp16's loss, 0: the rule's.
inline Trained train_prepared(Prepared& p, const CudaOptions& options,
                              const std::function<Backend(Backend)>& wrap = nullptr,
                              double begin_scale = 0) {
  Trained out;
  const TrainOptions& train_options = p.scenario.train;
  Result<Backend> backend = cuda::make_backend(options);
  EXPECT_TRUE(backend) << backend.error().message;
  if (wrap) backend = wrap(std::move(backend).value());
  const auto made =
      Interpreter::create({p.scenario.model, p.plan}, p.schedule, backend.value(), {});
  EXPECT_TRUE(made) << made.error().message;
  Interpreter& process = *made.value();
  const Result<> tried = process.try_kernels();
  EXPECT_TRUE(tried) << tried.error().message;
  process.initialise(initial_values(p.scenario.model, train_options.seed));
  const Result<Data> data =
      Data::open("synthetic", p.scenario.model.vocabulary, train_options.seed);
  const auto steps = train(process, p.plan, train_options, data.value(), nullptr,
                           {.scale = {.scale = begin_scale}});
  if (!steps) {
    out.error = steps.error().message;
    return out;
  }
  for (const StepReport& step : steps.value()) {
    out.losses.push_back(step.loss);
    out.norms.push_back(step.grad_norm);
  }
  for (const TensorPlace& place : process.places()) out.weights.try_emplace(place.name);
  for (auto& [name, values] : out.weights) values = process.parameter(name);
  return out;
}

}  // namespace rehearse::exec
