// SPDX-License-Identifier: Apache-2.0
// Prices by which a lowering orders the ops of a plan (LowerOptions::price): transfers of every row
// stand in the order in which they could begin if each op took what it is priced at.
//
// Whoever orders a plan by the same cluster gets the same schedule, down to its hash: a prediction
// by its own cluster; what is ours, `run`, its --dry-run and whatever else predicts it, by the
// cluster that the scenario's file names, whatever machine runs it and whatever --cluster
// describes.
#pragma once

#include "schedules/passes/lower.h"
#include "sim/predict/predict.h"

namespace rehearse::sim {

// Models that price a plan's ops on its rows. REQUIRES: the models stay where they are.
Result<> make_models(CostModels& models, const Layout& layout, std::span<const RankClassInfo> rows,
                     const KernelScalars& scalars);

// What every op of the pricing takes, alone.
std::vector<std::int64_t> times_of(const Pricing& pricing);

// Prices of a cluster. Where its tables do not price a plan the order follows estimate_by_flops.
// Error: tables that cannot be read.
Result<PriceOps> order_prices(const Cluster& cluster);
// Prices of the cluster that orders a run: the file's, and where it names none that of --cluster.
// Error: a cluster that is not readable.
Result<PriceOps> order_prices(const Scenario& scenario);
// Prices nothing: the order follows estimate_by_flops.
PriceOps by_flops();
// By the models that priced a prediction. REQUIRES: models->compute.
PriceOps order_prices(std::shared_ptr<const CostModels> models);

}  // namespace rehearse::sim
