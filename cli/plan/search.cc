// SPDX-License-Identifier: Apache-2.0
// rehearse search: the best plans for a model on a cluster, or on several.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <span>
#include <thread>

#include "cli/commands.h"
#include "cli/plan/buy_options.h"
#include "cli/plan/flags_on.h"
#include "cli/words.h"
#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan_line.h"
#include "sim/cluster/cluster.h"
#include "sim/search/report/saved_plan.h"
#include "sim/search/report/search_report.h"

namespace rehearse::cli {
namespace {

struct SearchOptions {
  std::string scenario, save, svg;
  std::vector<std::string> set, clusters;
  std::vector<std::int32_t> gpus;
  std::vector<double> prices;
  std::int32_t top = 10, threads = 0;
  std::string framework;
  double tokens = 0, change = 20, headroom = 5;
  bool json = false, csv = false, all = false;
  BuyOptions buy;
};

std::atomic<bool> stop_asked{false};
extern "C" void ask_to_stop(int) {
  stop_asked.store(true);
}

// Ctrl-C ends the search, not the command; as it was before once the search is over. Searches that
// a program asks for may overlap, and its signals are its own.
class StopOnInterrupt {
 public:
  StopOnInterrupt() : ours_(!words_are_kept()) {
    if (ours_) before_ = std::signal(SIGINT, ask_to_stop);
  }
  ~StopOnInterrupt() {
    if (ours_) std::signal(SIGINT, before_);
  }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

 private:
  bool ours_;
  void (*before_)(int) = SIG_DFL;
};

class ProgressLine {
 public:
  using Clock = std::chrono::steady_clock;
  ProgressLine() : shown_(on_terminal(stderr)), begin_(Clock::now()), last_(begin_) {}
  ~ProgressLine() {
    if (drawn_) std::fputs("\r\033[K", stderr);
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const sim::SearchProgress& progress) {
    const auto now = Clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    std::string text =
        std::to_string(progress.plans) + " plans (" +
        std::to_string(static_cast<std::int64_t>(static_cast<double>(progress.plans) / seconds)) +
        "/s), mesh " + std::to_string(progress.meshes_done) + "/" + std::to_string(progress.meshes);
    if (progress.best != nullptr) {
      char step[32];
      std::snprintf(step, sizeof step, "%.3f s", progress.best->step_s);
      text += ", " + std::to_string(progress.confirmed) + " simulated, best " + step + " (" +
              plan_line(progress.best->plan) + ")";
    }
    std::fprintf(stderr, "\r\033[K%.110s", text.c_str());
    std::fflush(stderr);
    drawn_ = true;
  }

 private:
  bool shown_, drawn_ = false;
  Clock::time_point begin_, last_;
};

// DIR/plan-01.json ..., with cluster and GPUs in the name where there are several.
int save_plans(const SearchOptions& options, const sim::Space& space, const sim::SearchCase& one,
               bool single) {
  std::error_code failed;
  std::filesystem::create_directories(options.save, failed);
  std::int32_t number = 0;
  for (const sim::FoundPlan& found : one.result.best) {
    char rank[16];
    std::snprintf(rank, sizeof rank, "%02d", ++number);
    const std::string prefix =
        single ? "plan-"
               : std::filesystem::path(space.base.cluster.path).stem().string() + "-" +
                     std::to_string(one.gpus) + "-plan-";
    const std::string path = options.save + "/" + prefix + rank + ".json";
    const std::string name = space.base.name + ": " + plan_line(found.plan);
    const int code = write_file(path, sim::scenario_text(space, found, name));
    if (code != kDone) return code;
  }
  return kDone;
}

// What of the space is searched: what the framework named can launch, or without one what some
// released framework can. Gives the names of the schedules left out.
Result<std::vector<std::string>> narrow(sim::Space& space, const std::string& named,
                                        const std::vector<sim::Framework>& frameworks) {
  if (named.empty()) return keep_released(space, frameworks);
  std::vector<std::string_view> names;
  for (const sim::Framework& framework : frameworks) {
    names.push_back(framework.name);
    if (framework.name != named) continue;
    if (const Result<> used = use_framework(space, framework); !used) return used.error();
    return std::vector<std::string>{};
  }
  return Error{"--framework: there is no " + json_excerpt(named) + what_is_known(named, names)};
}

// What all cases of a search have in common, and what becomes of them.
class Searcher {
 public:
  Searcher(const SearchOptions& options, const Buyer& buyer, sim::SearchOptions how, bool single)
      : options_(options), buyer_(buyer), how_(std::move(how)), single_(single) {
    report_.tokens = options.tokens;
  }

  // The numbers of GPUs that are asked for, or the scenario's, on the `c`-th cluster. The command's
  // exit code where it ends here.
  std::optional<int> search_on(std::size_t c) {
    const std::size_t sizes = std::max<std::size_t>(options_.gpus.size(), 1);
    for (std::size_t i = 0; i < sizes; ++i) {
      if (stop_asked.load() && !report_.cases.empty()) return {};
      std::optional<std::int32_t> asked;
      if (!options_.gpus.empty()) asked = options_.gpus[i];
      Result<sim::SearchCase> found = searched(c, asked);
      if (!found) return fail(found.error().message);
      report_.cases.push_back(std::move(found).value());
      if (failed_) return failed_;
    }
    return {};
  }

  // The fewest GPUs of the `c`-th cluster that meet the date and the budget: one node, twice as
  // many until one does, then between those; to whole nodes, or an eighth.
  std::optional<int> smallest_on(std::size_t c) {
    const Result<sim::Space> space = sim::read_space(options_.scenario, what_is_read(c, {}));
    if (!space) return fail(space.error().message);
    const std::int32_t node = space.value().base.cluster.gpus_per_node;
    const std::size_t begin = report_.cases.size();
    constexpr std::int32_t kMost = 1 << 17;
    std::int32_t missed = 0, met = 0;
    for (std::int32_t gpus = node; gpus <= kMost && met == 0; gpus *= 2) {
      const std::optional<Tried> tried = attempt(c, gpus, /*first=*/gpus == node);
      if (failed_) return failed_;
      if (!tried) break;  // larger than any plan
      if (tried->meets) met = gpus;
      if (!tried->meets) missed = gpus;
      if (tried->hopeless) break;
    }
    while (met - missed > std::max(node, met / 8)) {
      const std::int32_t gpus = (missed + (met - missed) / 2) / node * node;
      if (gpus <= missed || stop_asked.load()) break;
      const std::optional<Tried> tried = attempt(c, gpus, /*first=*/false);
      if (failed_) return failed_;
      (tried && tried->meets ? met : missed) = gpus;
    }
    const auto cases = std::span(report_.cases).subspan(begin);
    std::ranges::stable_sort(cases, {}, &sim::SearchCase::gpus);
    return {};
  }

  sim::SearchReport& report() { return report_; }
  const sim::Space& first() const { return *first_; }

 private:
  struct Tried {
    bool meets = false;
    bool hopeless = false;  // more GPUs are neither faster nor cheaper, or not wanted any more
  };

  // None: this number of GPUs has no plan; that is an error of the `first` alone.
  std::optional<Tried> attempt(std::size_t c, std::int32_t gpus, bool first) {
    Result<sim::SearchCase> found = searched(c, gpus);
    if (!found) {
      if (first) failed_ = fail(found.error().message);
      return {};
    }
    sim::SearchCase one = std::move(found).value();
    Tried tried{.meets = one.late && one.meets, .hopeless = stop_asked.load()};
    const bool again = !report_.cases.empty() && report_.cases.back().late &&
                       report_.cases.back().cluster == one.cluster;
    if (again && one.late) {
      const sim::TimeToTrain& before = *report_.cases.back().late;
      tried.hopeless |= one.late->seconds >= before.seconds;
      tried.hopeless |= buyer_.too_dear(one) && one.late->usd >= before.usd;
    }
    report_.cases.push_back(std::move(one));
    return tried;
  }

  ScenarioOptions what_is_read(std::size_t c, std::optional<std::int32_t> gpus) const {
    ScenarioOptions read{.overrides = options_.set};
    if (!options_.clusters.empty()) read.cluster = options_.clusters[c];
    if (gpus) read.gpus = *gpus;
    return read;
  }

  Result<sim::SearchCase> searched(std::size_t c, std::optional<std::int32_t> gpus) {
    Result<sim::Space> read_space = sim::read_space(options_.scenario, what_is_read(c, gpus));
    if (!read_space) return read_space.error();
    sim::Space space = std::move(read_space).value();
    space.base.file_cluster.reset();  // what is found is a file that names this cluster
    Result<std::vector<std::string>> left_out = narrow(space, options_.framework, how_.frameworks);
    if (!left_out) return left_out.error();
    Result<sim::Cluster> cluster = sim::read_cluster(space.base.cluster);
    if (!cluster) return cluster.error();
    sim::Cluster hardware = std::move(cluster).value();
    const std::int32_t wanted = space.gpus.value_or(space.base.cluster.gpus_per_node);
    const Result<> enough = sim::check_gpus(hardware, wanted);
    if (!enough) return enough.error();
    hardware = sim::with_places(std::move(hardware), wanted);
    if (const Result<> priced = buyer_.set_prices(hardware); !priced) return priced.error();
    if (!options_.prices.empty()) {
      hardware.price_usd_per_gpu_hour = options_.prices[options_.prices.size() == 1 ? 0 : c];
    }
    if (const Result<> known = buyer_.check(hardware); !known) return known.error();
    Result<sim::SearchResult> found = sim::search(space, hardware, how_);
    if (!found) return found.error();
    sim::SearchCase one{.cluster = hardware.name,
                        .gpus = found.value().gpus,
                        .result = std::move(found).value(),
                        .usd_per_gpu_hour = hardware.price_usd_per_gpu_hour};
    one.result.left_out = std::move(left_out).value();
    if (!one.result.best.empty()) {
      const sim::FoundPlan& best = one.result.best.front();
      one.goodput = sim::goodput_of(hardware, space.base.model, best.plan);
      if (options_.tokens > 0) {
        one.train = sim::time_to_train(options_.tokens, best.tokens_per_s, best.plan.gpus(),
                                       one.goodput, one.usd_per_gpu_hour);
      }
      buyer_.add(one, hardware, options_.tokens);
    }
    keep(std::move(space), one);
    return one;
  }

  // What is written of a case, and said of the first.
  void keep(sim::Space space, const sim::SearchCase& one) {
    if (!options_.save.empty()) {
      if (const int code = save_plans(options_, space, one, single_); code != kDone) failed_ = code;
    }
    if (first_) return;
    report_.name = space.base.name;
    report_.fixed = sim::fixed_sizes(space);
    for (const std::string& warning : one.result.warnings) print_error("warning: " + warning);
    for (const std::string& note : space.base.notes()) print_error("note: " + note);
    first_ = std::move(space);
  }

  const SearchOptions& options_;
  const Buyer& buyer_;
  sim::SearchOptions how_;
  bool single_;
  sim::SearchReport report_;
  std::optional<sim::Space> first_;
  std::optional<int> failed_;
};

// What launches the fastest plan of the first case in the framework that was asked for.
Result<std::string> flags_of(const sim::Space& space, const sim::SearchReport& report,
                             const std::string& framework) {
  if (report.cases.empty() || report.cases.front().result.best.empty()) return std::string();
  Scenario scenario = space.base;
  scenario.plan = report.cases.front().result.best.front().plan;
  const Result<sim::Cluster> cluster = sim::read_cluster(space.base.cluster);
  if (!cluster) return cluster.error();
  return flags_on(cluster.value(), scenario, framework, model_object(space.model_json));
}

int search(const SearchOptions& options, const Given& given) {
  if (options.json && options.csv) {
    return fail("--json and --csv exclude each other");
  }
  if (!ends_as(options.svg, "--svg", ".svg")) return kBadInput;
  if (!options.prices.empty() && options.prices.size() != 1 &&
      options.prices.size() != options.clusters.size()) {
    return fail("--price takes one price, or one for each --cluster");
  }
  if (!options.prices.empty() && !options.buy.prices.empty()) {
    return fail("--price and --prices exclude each other");
  }
  const Result<Buyer> buyer = Buyer::create(options.buy, given, options.tokens);
  if (!buyer) return fail(buyer.error());
  const auto begin = std::chrono::steady_clock::now();
  const StopOnInterrupt interrupt;
  stop_asked.store(false);
  const std::size_t clusters = std::max<std::size_t>(options.clusters.size(), 1);
  const bool smallest = buyer.value().has_target() && options.gpus.empty();
  const bool one_case = clusters * std::max<std::size_t>(options.gpus.size(), 1) == 1 && !smallest;
  sim::SearchOptions how{.top = options.top,
                         .threads = options.threads,
                         .front = one_case,
                         .merge = one_case && !options.all,  // a table compares the fastest
                         .headroom = options.headroom / 100,
                         .change = 1 + options.change / 100,
                         .stop = &stop_asked};
  if (how.threads <= 0) {
    how.threads = std::max(1, static_cast<std::int32_t>(std::thread::hardware_concurrency()));
  }
  Result<std::vector<sim::Framework>> frameworks = sim::shipped_frameworks();
  if (!frameworks) return fail(frameworks.error().message);
  how.frameworks = std::move(frameworks).value();
  std::optional<ProgressLine> line(std::in_place);
  how.progress = [&line](const sim::SearchProgress& progress) { line->show(progress); };
  Searcher searcher(options, buyer.value(), std::move(how), one_case);
  for (std::size_t c = 0; c < clusters; ++c) {
    const std::optional<int> ended = smallest ? searcher.smallest_on(c) : searcher.search_on(c);
    if (ended) return *ended;
  }
  line.reset();
  sim::SearchReport& report = searcher.report();
  buyer.value().add(report);
  report.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  std::int64_t plans = 0;
  for (const sim::SearchCase& one : report.cases) plans += one.result.plans;
  report.plans_per_s = static_cast<double>(plans) / report.wall_s;
  if (!options.svg.empty()) {
    if (const int code = write_file(options.svg, sim::search_svg(report)); code != kDone) {
      return code;
    }
  }
  if (!options.framework.empty()) {
    Result<std::string> flags = flags_of(searcher.first(), report, options.framework);
    if (!flags) return fail(flags.error());
    report.flags = std::move(flags).value();
  }
  const std::string text = options.json  ? sim::search_json(report, searcher.first())
                           : options.csv ? sim::search_csv(report)
                                         : sim::search_text(report);
  print_text(text);
  if (!report.flags.empty() && !options.json && !options.csv) {
    print_text("flags     " + report.flags + "\n");
  }
  const bool nothing = std::ranges::all_of(report.cases, [](const sim::SearchCase& one) {
    return one.result.best.empty() && !one.result.interrupted;
  });
  const bool missed = buyer.value().has_target() && !report.chosen;
  return nothing || missed ? kNo : kDone;
}

}  // namespace

Command search_command() {
  const auto o = std::make_shared<SearchOptions>();
  Command command{"search", "the best plans for a model on a cluster, and why"};
  command.options = {
      required({"SCENARIO", &o->scenario,
                "scenario file; keys left out or lists of values are searched"}),
      shows_default({"--top", &o->top, "how many plans to list", Whole{1, 1000}}),
      {"--gpus", &o->gpus, "numbers of GPUs instead of the scenario's", Whole{1, 1 << 20}},
      {"--cluster", &o->clusters, "cluster files instead of the scenario's"},
      {"--price", &o->prices, "USD per GPU and hour, one or one per cluster", Number{0, 1e6}},
      {"--tokens", &o->tokens, "budget: time to train and cost for so many", Number{1, 1e18}},
      shows_default({"--change", &o->change, "per cent, of the better hardware under `why`",
                     Number{1, 1000}}),
      {"--framework", &o->framework, "search what it can launch: megatron, torchtitan, ..."},
      shows_default({"--headroom", &o->headroom, "per cent of a GPU's memory that is kept free",
                     Number{0, 99}}),
      {"--all", &o->all, "list every plan, also those that the prediction cannot tell apart"},
      one_each({"--set", &o->set, "override a key: --set plan.tensor_parallel=[1,2,4]"}),
      {"--save", &o->save, "write every plan listed as a scenario into DIR"},
      writes({"--svg", &o->svg, "write throughput and cost against GPUs to FILE"}),
      {"--threads", &o->threads, "default: all cores; the result is the same", Whole{1, 1024}},
      {"--json", &o->json, "one JSON document on stdout"},
      {"--csv", &o->csv, "one row per plan"},
  };
  std::ranges::move(buy_options(o->buy), std::back_inserter(command.options));
  command.footer =
      "Example: rehearse search 3d-8-gpus --set plan.data_parallel=null --gpus 8 16 32 --top 3";
  command.perform = [o](const Given& given) { return search(*o, given); };
  return command;
}

}  // namespace rehearse::cli
