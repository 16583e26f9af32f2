// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/goodput.h"

#include <algorithm>

#include "schedules/scenario/memory/optimizer_state.h"
#include "sim/formulas/closed_form.h"

namespace rehearse::sim {

std::int64_t checkpoint_bytes(const Transformer& model, const Plan& plan) {
  // Where parameters are their own master copy (4 + 4 + 8) they are saved too.
  const bool own_master = plan.precision.parameters >= 4;
  const std::int64_t parameters = total_parameters(model);
  return state_bytes(plan, parameters) + (own_master ? parameters * plan.precision.parameters : 0);
}

std::optional<Goodput> goodput_of(const Cluster& cluster, const Transformer& model,
                                  const Plan& plan) {
  if (!cluster.failures_per_million_gpu_hours || !cluster.checkpoint_bandwidth) return std::nullopt;
  Goodput goodput;
  goodput.save_s =
      static_cast<double>(checkpoint_bytes(model, plan)) / cluster.checkpoint_bandwidth->value;
  const double failures_per_s = *cluster.failures_per_million_gpu_hours * 1e-6 / 3600 * plan.gpus();
  if (failures_per_s <= 0) return goodput;
  goodput.mtbf_s = 1 / failures_per_s;
  goodput.interval_s = checkpoint_interval(goodput.save_s, goodput.mtbf_s);
  const double loss =
      goodput_loss(goodput.interval_s, goodput.save_s, goodput.save_s, goodput.mtbf_s);
  goodput.share = std::max(0.0, 1 - loss);
  return goodput;
}

TimeToTrain time_to_train(double tokens, double tokens_per_s, std::int32_t gpus,
                          const std::optional<Goodput>& goodput,
                          const std::optional<double>& usd_per_gpu_hour) {
  TimeToTrain time;
  time.seconds = tokens / (tokens_per_s * (goodput ? goodput->share : 1));
  if (usd_per_gpu_hour) time.usd = *usd_per_gpu_hour * gpus * time.seconds / 3600;
  return time;
}

}  // namespace rehearse::sim
