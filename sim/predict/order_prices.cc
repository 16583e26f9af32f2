// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/order_prices.h"

namespace rehearse::sim {
namespace {

Result<std::vector<std::int64_t>> prices_on(const Cluster& cluster,
                                            const CollectiveModel& collectives,
                                            const KernelScalars& scalars, const Schedule& drafted,
                                            const Layout& layout) {
  CostModels models{.cluster = with_places(cluster, layout.plan.gpus()),
                    .collectives = collectives};
  if (const Result<> made = make_models(models, layout, drafted.rows, scalars); !made) {
    return made.error();
  }
  return times_of(price(drafted, layout, *models.compute, *models.network));
}

}  // namespace

Result<> make_models(CostModels& models, const Layout& layout, std::span<const RankClassInfo> rows,
                     const KernelScalars& scalars) {
  const Network& network =
      models.network.emplace(models.cluster, models.collectives, layout.plan, rows);
  Result<ComputeModel> compute =
      ComputeModel::create(models.cluster, layout, body_collectives(network, layout), scalars);
  if (!compute) return compute.error();
  models.compute.emplace(std::move(compute).value());
  return {};
}

std::vector<std::int64_t> times_of(const Pricing& pricing) {
  std::vector<std::int64_t> times;
  times.reserve(pricing.table.of_op.size());
  for (const std::int32_t cost : pricing.table.of_op) {
    times.push_back(pricing.table.costs[static_cast<std::size_t>(cost)].time.value);
  }
  return times;
}

Result<PriceOps> order_prices(const Cluster& cluster) {
  Result<HardwareTables> tables = read_hardware_tables(cluster, {});
  if (!tables) return tables.error();
  const auto read = std::make_shared<const HardwareTables>(std::move(tables).value());
  return PriceOps([cluster, read](const Schedule& drafted, const Layout& layout) {
    Result<std::vector<std::int64_t>> times =
        prices_on(cluster, read->collectives, read->scalars, drafted, layout);
    return times ? std::move(times)
                 : Result<std::vector<std::int64_t>>(std::vector<std::int64_t>{});
  });
}

PriceOps by_flops() {
  return [](const Schedule&, const Layout&) -> Result<std::vector<std::int64_t>> {
    return std::vector<std::int64_t>{};
  };
}

Result<PriceOps> order_prices(const Scenario& scenario) {
  const Result<Cluster> cluster =
      read_cluster(scenario.file_cluster ? *scenario.file_cluster : scenario.cluster);
  if (!cluster) return cluster.error();
  return order_prices(cluster.value());
}

PriceOps order_prices(std::shared_ptr<const CostModels> models) {
  return [models = std::move(models)](const Schedule& drafted, const Layout& layout) {
    return prices_on(models->cluster, models->collectives, models->compute->scalars(), drafted,
                     layout);
  };
}

}  // namespace rehearse::sim
