// SPDX-License-Identifier: Apache-2.0
// What `search` may be asked about a whole training run: a date, a budget, failures, energy.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "cli/options.h"
#include "schedules/base/result.h"
#include "sim/search/buy/prices.h"
#include "sim/search/buy/site.h"
#include "sim/search/report/search_report.h"

namespace rehearse::cli {

struct BuyOptions {
  std::string by, start, prices;
  double budget = 0, restart = 0, repair = 0, shape = 1, pue = 1, co2 = 0, node_w = 0;
  std::int32_t spares = 0;
  bool fewer_replicas = false;
};
std::vector<Option> buy_options(BuyOptions& options);

// The options, read and checked; what a case of the search becomes by them.
class Buyer {
 public:
  // `given`: names of the options that the command line has. Errors: one line.
  static Result<Buyer> create(const BuyOptions& options, const Given& given, double tokens);

  bool has_target() const { return seconds_.has_value() || budget_.has_value(); }
  // The price of the day and the interruptions that come with it. Errors: the file has no price.
  Result<> set_prices(sim::Cluster& cluster) const;
  // Whether the cluster's file knows what was asked about it. Errors: what it lacks, and the flag.
  Result<> check(const sim::Cluster& cluster) const;
  // REQUIRES: check(cluster).
  void add(sim::SearchCase& one, const sim::Cluster& cluster, double tokens) const;
  // What all cases share, and which of them is chosen.
  void add(sim::SearchReport& report) const;
  bool too_dear(const sim::SearchCase& one) const;

 private:
  bool gives(std::string_view option) const;
  std::optional<double> host_w(const sim::Cluster& cluster) const;

  BuyOptions options_;
  Given given_;
  bool buys_ = false;
  sim::Site site_;
  std::vector<sim::Price> prices_;
  std::chrono::sys_days start_{};
  std::optional<std::chrono::sys_days> by_;
  std::optional<double> seconds_, budget_;
};

}  // namespace rehearse::cli
