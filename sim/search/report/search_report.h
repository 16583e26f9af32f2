// SPDX-License-Identifier: Apache-2.0
// The answers of a search for people, for scripts (JSON, schema rehearse.search/1; CSV) and as a
// picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/predict/goodput.h"
#include "sim/search/buy/energy.h"
#include "sim/search/buy/failures.h"
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
  // Where the search is asked for more than a plan (SearchReport::site), of the best plan and the
  // budget of tokens: failures played through, the run in nine of ten cases, what it takes.
  std::optional<GoodputSpread> spread;  // where failures are known
  std::optional<TimeToTrain> late;      // nine runs in ten are done by then, for no more
  std::optional<TrainingEnergy> energy;
  std::string done_by;  // the day; of `late`
  bool meets = true;    // the date and the budget
};

struct SearchReport {
  std::string name;
  std::string fixed;         // what the scenario leaves no choice of (fixed_sizes)
  double tokens = 0;         // budget; 0: none
  std::optional<Site> site;  // where it is asked for a date, a budget, energy or failures
  std::string by;            // the date, "2027-03-01"; empty: none
  std::optional<double> budget_usd;
  std::optional<std::size_t> chosen;  // of the cases that meet both the cheapest, else the smallest
  std::vector<SearchCase> cases;
  std::string flags;  // that launch the first case's best plan in a framework; empty: none asked
  double wall_s = 0, plans_per_s = 0;  // of the caller's clock; 0: not said
};

std::string search_text(const SearchReport& report);
// When the training is done, what it costs and takes, by case; empty unless the report has a site.
std::string buying_text(const SearchReport& report);
std::string search_json(const SearchReport& report, const Space& space);
std::string search_csv(const SearchReport& report);
// Throughput (and cost per billion tokens, where prices are known) against the number of GPUs, one
// line per cluster.
std::string search_svg(const SearchReport& report);

}  // namespace rehearse::sim
