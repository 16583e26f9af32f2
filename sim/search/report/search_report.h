// SPDX-License-Identifier: Apache-2.0
// The answers of a search for people, for scripts (JSON, schema rehearse.search/1; CSV) and as a
// picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/predict/goodput.h"
#include "sim/search/search.h"

namespace rehearse::sim {

// One search of a table over GPU counts and clusters.
struct SearchCase {
  std::string cluster;  // its name
  std::int32_t gpus = 1;
  SearchResult result;
  std::optional<Goodput> goodput;    // of the best plan
  std::optional<TimeToTrain> train;  // where a token budget is given
  std::optional<double> usd_per_gpu_hour;
};

struct SearchReport {
  std::string name;
  std::string fixed;  // what the scenario leaves no choice of (fixed_sizes)
  double tokens = 0;  // budget; 0: none
  std::vector<SearchCase> cases;
  double wall_s = 0, plans_per_s = 0;  // of the caller's clock; 0: not said
};

std::string search_text(const SearchReport& report);
std::string search_json(const SearchReport& report, const Space& space);
std::string search_csv(const SearchReport& report);
// Throughput (and cost per billion tokens, where prices are known) against the number of GPUs, one
// line per cluster.
std::string search_svg(const SearchReport& report);

}  // namespace rehearse::sim
