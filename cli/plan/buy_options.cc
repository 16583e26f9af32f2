// SPDX-License-Identifier: Apache-2.0
#include "cli/plan/buy_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "cli/plan/deadline.h"
#include "schedules/base/json_reader.h"

namespace rehearse::cli {
namespace {

constexpr std::int32_t kRuns = 400;  // of the training, among failures
constexpr std::uint64_t kSeed = 1;

// What must be known of a cluster, where one of these is given.
constexpr std::array<std::string_view, 5> kAboutFailures{"--restart", "--repair", "--spares",
                                                         "--fewer-replicas", "--failure-shape"};
constexpr std::array<std::string_view, 3> kAboutEnergy{"--pue", "--co2", "--node-watts"};

}  // namespace

std::vector<Option> buy_options(BuyOptions& o) {
  return {
      {"--by", &o.by, "the training of --tokens has to be done by DATE (2027-03-01)"},
      {"--start", &o.start, "DATE on which it begins; default: today"},
      {"--budget", &o.budget, "USD that the training may cost", Number{0, 1e15}},
      {"--prices", &o.prices, "file of prices of the day, by cluster (docs/buy.md)"},
      {"--restart", &o.restart,
       "seconds from a failure to training again, beside reading the checkpoint", Number{0, 1e7}},
      {"--repair", &o.repair, "hours until a failed node is back", Number{0, 1e5}},
      {"--spares", &o.spares, "nodes that take a failed one's place", Whole{0, 1 << 20}},
      {"--fewer-replicas", &o.fewer_replicas,
       "without a spare go on with the replicas that are whole, instead of waiting"},
      {"--failure-shape", &o.shape, "of times between failures: 1 exponential, below 1 in bursts",
       Number{0.2, 5}},
      {"--pue", &o.pue, "energy of the site over that of its machines", Number{1, 5}},
      {"--co2", &o.co2, "grams per kWh of the grid", Number{0, 5000}},
      {"--node-watts", &o.node_w, "of a node beside its GPUs, instead of the cluster file's",
       Number{0, 1e6}},
  };
}

bool Buyer::gives(std::string_view option) const {
  return std::ranges::find(given_, option) != given_.end();
}

Result<Buyer> Buyer::create(const BuyOptions& options, const Given& given, double tokens) {
  Buyer buyer;
  buyer.options_ = options;
  buyer.given_ = given;
  BuyOptions unused;
  for (const Option& option : buy_options(unused)) {
    if (option.name == "--prices" || !buyer.gives(option.name)) continue;
    buyer.buys_ = true;
    if (tokens <= 0) {
      return Error{option.name + ": is about a whole training run: --tokens says how long it is"};
    }
  }
  for (const std::string_view waits : {"--spares", "--fewer-replicas"}) {
    if (!buyer.gives(waits) || options.repair > 0) continue;
    return Error{std::string(waits) +
                 ": without --repair a failed node is back at once, and this changes nothing"};
  }
  Result<sim::Site> site = sim::average_site();
  if (!site) return site.error();
  buyer.site_ = std::move(site).value();
  if (buyer.gives("--pue")) buyer.site_.pue = {options.pue, "--pue"};
  if (buyer.gives("--co2")) buyer.site_.co2_g_per_kwh = {options.co2, "--co2"};
  buyer.start_ = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
  if (!options.start.empty()) {
    const auto start = read_date(options.start, "--start");
    if (!start) return start.error();
    buyer.start_ = start.value();
  }
  if (!options.by.empty()) {
    const auto by = read_date(options.by, "--by");
    if (!by) return by.error();
    const Result<double> seconds = seconds_until(buyer.start_, by.value());
    if (!seconds) return seconds.error();
    buyer.by_ = by.value();
    buyer.seconds_ = seconds.value();
  }
  if (buyer.gives("--budget")) buyer.budget_ = options.budget;
  if (options.prices.empty()) return buyer;
  Result<std::vector<sim::Price>> prices = sim::read_prices(options.prices);
  if (!prices) return prices.error();
  buyer.prices_ = std::move(prices).value();
  return buyer;
}

Result<> Buyer::set_prices(sim::Cluster& cluster) const {
  if (options_.prices.empty()) return {};
  const sim::Price* price = sim::price_of(prices_, cluster.id);
  if (price == nullptr) {
    return Error{options_.prices + ": has no price for " + json_excerpt(cluster.id)};
  }
  cluster.price_usd_per_gpu_hour = price->usd_per_gpu_hour;
  const double taken = price->interruptions_per_million_gpu_hours;
  if (taken > 0) {
    cluster.failures_per_million_gpu_hours =
        cluster.failures_per_million_gpu_hours.value_or(0) + taken;
  }
  return {};
}

std::optional<double> Buyer::host_w(const sim::Cluster& cluster) const {
  return gives("--node-watts") ? std::optional(options_.node_w) : sim::host_w(cluster);
}

Result<> Buyer::check(const sim::Cluster& cluster) const {
  const auto given_of = [&](std::span<const std::string_view> options) {
    const auto found = std::ranges::find_if(options, [&](auto option) { return gives(option); });
    return found == options.end() ? std::string() : std::string(*found);
  };
  if (budget_ && !cluster.price_usd_per_gpu_hour) {
    return Error{"--budget: " + cluster.name +
                 " has no price: --price USD, or --prices FILE, says what a GPU costs an hour"};
  }
  const std::string failures = given_of(kAboutFailures);
  if (!failures.empty() &&
      (!cluster.failures_per_million_gpu_hours || !cluster.checkpoint_bandwidth)) {
    return Error{
        failures + ": " + cluster.name +
        " does not say how often it fails and how fast checkpoints are written: --set "
        "cluster.failures_per_million_gpu_hours=..., --set cluster.checkpoint_gb_per_s=..."};
  }
  const std::string energy = given_of(kAboutEnergy);
  if (!energy.empty() && !host_w(cluster)) {
    return Error{energy + ": " + cluster.name +
                 " does not say what a node takes beside its GPUs: --node-watts W"};
  }
  return {};
}

void Buyer::add(sim::SearchCase& one, const sim::Cluster& cluster, double tokens) const {
  if (!buys_ || one.result.best.empty()) return;
  const sim::FoundPlan& best = one.result.best.front();
  const double work_s = tokens / best.tokens_per_s;
  if (one.goodput && one.goodput->mtbf_s > 0) {
    const double save_s = one.goodput->save_s;
    one.spread =
        sim::simulate_failures({.mtbf_s = one.goodput->mtbf_s,
                                .shape = options_.shape,
                                .save_s = save_s,
                                .interval_s = one.goodput->interval_s,
                                .restart_s = options_.restart + save_s,
                                .repair_s = options_.repair * 3600,
                                .nodes = std::max(1, one.gpus / std::max(1, cluster.gpus_per_node)),
                                .spares = options_.spares,
                                .replicas = best.plan.data_parallel,
                                .fewer_replicas = options_.fewer_replicas},
                               work_s, kRuns, kSeed);
  }
  const double late_s = one.spread ? work_s / std::max(one.spread->p10, 1e-9) : work_s;
  // Spares are paid for, too.
  const double paid = one.gpus + static_cast<double>(options_.spares) * cluster.gpus_per_node;
  one.late = sim::TimeToTrain{.seconds = late_s};
  if (one.usd_per_gpu_hour) one.late->usd = *one.usd_per_gpu_hour * paid * late_s / 3600;
  one.energy = sim::training_energy(best.energy_j / best.step_s, host_w(cluster), late_s, one.gpus,
                                    cluster, site_);
  one.done_by = date_text(day_after(start_, late_s));
  one.meets = (!seconds_ || late_s <= *seconds_) && !too_dear(one);
}

void Buyer::add(sim::SearchReport& report) const {
  if (!buys_) return;
  report.site = site_;
  if (by_) report.by = date_text(*by_);
  report.budget_usd = budget_;
  if (!has_target()) return;
  for (std::size_t i = 0; i < report.cases.size(); ++i) {
    const sim::SearchCase& one = report.cases[i];
    if (!one.late || !one.meets) continue;
    if (!report.chosen) {
      report.chosen = i;
      continue;
    }
    const sim::SearchCase& best = report.cases[*report.chosen];
    const bool priced = one.late->usd && best.late->usd;
    const bool better = priced ? *one.late->usd < *best.late->usd : one.gpus < best.gpus;
    if (better) report.chosen = i;
  }
}

bool Buyer::too_dear(const sim::SearchCase& one) const {
  return budget_ && one.late && one.late->usd && *one.late->usd > *budget_;
}

}  // namespace rehearse::cli
