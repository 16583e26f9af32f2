// SPDX-License-Identifier: Apache-2.0
// What a long run really gets done: failures and checkpoints on top of a step time.
//
// Young's first-order model with Daly's interval (closed_form.h): one failure per mean time between
// failures of the whole machine, checkpoints that stop the training while they are written, half an
// interval lost per failure, and the checkpoint read back. No repair or queueing time.
#pragma once

#include <cstdint>
#include <optional>

#include "schedules/model/model.h"
#include "schedules/scenario/plan.h"
#include "sim/cluster/cluster.h"

namespace rehearse::sim {

struct Goodput {
  double mtbf_s = 0;      // of all GPUs together
  double save_s = 0;      // writing (or reading) one checkpoint
  double interval_s = 0;  // between checkpoints: sqrt(2 save mtbf)
  double share = 1;       // of the time that makes progress, in [0, 1)
};

// Bytes of a checkpoint: parameters in the optimizer's precision with its state.
std::int64_t checkpoint_bytes(const Transformer& model, const Plan& plan);

// Empty where the cluster does not know its failures_per_million_gpu_hours or checkpoint_gb_per_s
// (which is that of the storage, all nodes together).
std::optional<Goodput> goodput_of(const Cluster& cluster, const Transformer& model,
                                  const Plan& plan);

// A budget of tokens at a step's rate.
struct TimeToTrain {
  double seconds = 0;  // goodput counted where it is known
  std::optional<double> usd;
};
TimeToTrain time_to_train(double tokens, double tokens_per_s, std::int32_t gpus,
                          const std::optional<Goodput>& goodput,
                          const std::optional<double>& usd_per_gpu_hour);

}  // namespace rehearse::sim
