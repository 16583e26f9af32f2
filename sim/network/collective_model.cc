// SPDX-License-Identifier: Apache-2.0
// Reads scenarios/kernels/collectives.json and picks what describes one cluster.
#include "sim/network/collective_model.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "sim/cost/to_nanoseconds.h"

namespace rehearse::sim {
namespace {

constexpr double kGiga = 1e9;

// Members of one object, with the first error kept in the report. Numbers are required unless a
// fallback is given; the file is ours, so unknown keys are not looked for.
class Reader {
 public:
  Reader(const JsonValue& object, std::string where, JsonReport& report)
      : object_(object), where_(std::move(where)), report_(report) {}

  void fail(std::string_view key, const std::string& what) const {
    report_.fail(object_.line, where_ + "." + std::string(key), what);
  }
  double number(std::string_view key) const {
    const JsonValue* value = object_.given(key);
    if (value == nullptr || !value->is_number()) {
      fail(key, "must be a number");
      return 0;
    }
    return value->number;
  }
  double number(std::string_view key, double fallback) const {
    return object_.given(key) == nullptr ? fallback : number(key);
  }
  std::int64_t integer(std::string_view key, std::int64_t fallback) const {
    const JsonValue* value = object_.given(key);
    if (value == nullptr) return fallback;
    if (!value->is(JsonKind::Integer)) fail(key, "must be an integer");
    return value->integer;
  }
  std::string text(std::string_view key) const {
    const JsonValue* value = object_.given(key);
    if (value == nullptr) return {};
    if (!value->is(JsonKind::String)) fail(key, "must be a string");
    return value->text;
  }
  void numbers(std::string_view key, std::span<double> to) const {
    const JsonValue* list = object_.given(key);
    if (list == nullptr || list->items.size() != to.size()) {
      return fail(key, "must be a list of " + std::to_string(to.size()) + " numbers");
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
      if (!list->items[i].is_number()) fail(key, "must be a list of numbers");
      to[i] = list->items[i].number;
    }
  }
  // Calls `add` for each row of a list: a text, then numbers, `least` columns at least.
  template <class Add>
  void rows(std::string_view key, std::size_t least, Add add) const {
    const JsonValue* list = object_.given(key);
    if (list == nullptr) return fail(key, "must be a list");
    for (const JsonValue& row : list->items) {
      if (row.items.size() < least || !row.items.front().is(JsonKind::String) ||
          !std::ranges::all_of(row.items.begin() + 1, row.items.end(), &JsonValue::is_number)) {
        return fail(key, "a row needs a text and " + std::to_string(least - 1) + " numbers");
      }
      add(std::span<const JsonValue>(row.items));
    }
  }
  Reader member(std::string_view key) const {
    static const JsonValue kNothing;
    const JsonValue* value = object_.given(key);
    if (value == nullptr) fail(key, "is missing");
    return {value == nullptr ? kNothing : *value, where_ + "." + std::string(key), report_};
  }
  // The enumerator whose name the key holds. REQUIRES: `names` in the order of Enum.
  template <class Enum, std::size_t N>
  Enum one_of(std::string_view key, const std::array<std::string_view, N>& names) const {
    const std::string word = text(key);
    const auto place = static_cast<std::size_t>(std::ranges::find(names, word) - names.begin());
    if (place == N) fail(key, "unknown value '" + word + "'");
    return static_cast<Enum>(place % N);
  }
  template <class Enum, std::size_t N>
  Enum named(std::string_view key, std::string_view word,
             const std::array<std::pair<std::string_view, Enum>, N>& names) const {
    for (const auto& [name, value] : names) {
      if (name == word) return value;
    }
    fail(key, "unknown value '" + std::string(word) + "'");
    return names.front().second;
  }

 private:
  const JsonValue& object_;
  std::string where_;
  JsonReport& report_;
};

constexpr std::array<std::pair<std::string_view, OpKind>, 6> kOps{
    {{"all_reduce", OpKind::AllReduce},
     {"all_gather", OpKind::AllGather},
     {"reduce_scatter", OpKind::ReduceScatter},
     {"all_to_all", OpKind::AllToAll},
     {"broadcast", OpKind::Broadcast},
     {"reduce", OpKind::Reduce}}};

CollectiveConstants read_constants(const Reader& in) {
  return {.call_overhead = in.number("call_overhead_us") * kMicro,
          .step_fixed = in.number("step_fixed_us") * kMicro,
          .latency_hops = in.number("latency_hops"),
          .multi_node_fixed = in.number("multi_node_fixed_us") * kMicro,
          .part_alpha = in.number("part_alpha"),
          .part_root = in.number("part_root"),
          .send_recv_alpha = in.number("send_recv_alpha_us") * kMicro,
          .transfer_alpha = in.number("transfer_alpha_us") * kMicro,
          .transfer_latency_hops = in.number("transfer_latency_hops"),
          .transfer_nic_fraction = in.number("transfer_nic_fraction"),
          .scale_up_fraction = in.number("scale_up_fraction"),
          .pcie_fraction = in.number("pcie_fraction"),
          .socket_fraction = in.number("socket_fraction"),
          .chunk_bytes = in.number("chunk_kib") * 1024,
          .host_copy_alpha = in.number("host_copy_alpha_us") * kMicro,
          .host_copy_fraction = in.number("host_copy_fraction"),
          .host_update_rate = in.number("host_update_gb_per_s_per_socket") * kGiga};
}

DispatchConstants read_dispatch(const Reader& in) {
  return {.nic_fraction = in.number("nic_fraction"),
          .all_to_all_scale_up_fraction = in.number("all_to_all_scale_up_fraction"),
          .deduplicated_scale_up_fraction = in.number("deduplicated_scale_up_fraction"),
          .layout = in.number("layout_us") * kMicro};
}

CollectiveSystem read_system(const Reader& in) {
  return {.name = in.text("system"),
          .architecture = in.text("architecture"),
          .scale_up = in.one_of<ScaleUpKind>("scale_up", kScaleUpNames),
          .gpu_contains = in.text("gpu_contains"),
          .nic_kind = in.text("nic_kind"),
          .same_as = in.text("same_as"),
          .small_bandwidth = in.number("small_bus_bandwidth_gb_per_s", 0) * kGiga,
          .in_switch_from = static_cast<std::int32_t>(in.integer("in_switch_from", 0)),
          .send_recv_alpha = in.number("send_recv_alpha_us", 0) * kMicro,
          .send_recv_bandwidth = in.number("send_recv_gb_per_s", 0) * kGiga};
}

// A row of fits of one system and source. The residuals behind these columns are for people.
enum FitColumn : std::size_t {
  kOp,
  kRanks,
  kNodes,
  kAlpha,
  kRoot,
  kBandwidth,
  kMinBytes,
  kMaxBytes
};

void read_fits(const Reader& in, std::vector<CollectiveFit>& fits) {
  const std::string system = in.text("system");
  in.rows("rows", kBandwidth + 1, [&](std::span<const JsonValue> row) {
    const auto number = [&](FitColumn c) { return c < row.size() ? row[c].number : 0; };
    const auto integer = [&](FitColumn c) -> std::int64_t {
      if (c >= row.size()) return 0;
      if (!row[c].is(JsonKind::Integer)) in.fail("rows", "ranks, nodes and bytes are integers");
      return row[c].integer;
    };
    fits.push_back({.system = system,
                    .kind = in.named("rows", row[kOp].text, kOps),
                    .ranks = static_cast<std::int32_t>(integer(kRanks)),
                    .nodes = static_cast<std::int32_t>(integer(kNodes)),
                    .alpha = number(kAlpha) * kMicro,
                    .root = number(kRoot) * kMicro / 1e3,  // sqrt(1e6 B) = 1e3
                    .bus_bandwidth = number(kBandwidth) * kGiga,
                    .min_bytes = integer(kMinBytes),
                    .max_bytes = integer(kMaxBytes)});
  });
}

NicConstants read_nic(const Reader& in) {
  const double step_us = in.number("step_us", -1);
  return {.kind = in.text("kind"),
          .achievable_fraction = in.number("achievable_fraction"),
          .one_group_fraction = in.number("one_group_fraction", 0),
          .benchmarked = !in.text("source").empty(),
          .step = step_us < 0 ? -1 : step_us * kMicro};
}

// Calls `add` for each object of the array under `key`.
template <class Add>
void each(const JsonValue& file, std::string_view key, JsonReport& report, Add add) {
  const JsonValue* list = file.given(key);
  if (list == nullptr || !list->is(JsonKind::Array)) {
    report.fail(file.line, std::string(key), "must be a list");
    return;
  }
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    std::string where(key);
    where += '[' + std::to_string(i) + ']';
    add(Reader(list->items[i], where, report));
  }
}

TunerTables read_tuner(const JsonValue& json, JsonReport& report) {
  const Reader in(json, "tuner", report);
  TunerTables tables;
  const auto latency = [&](std::string_view key, TunerTables::PerAlgorithm& to) {
    const Reader of = in.member("latency_us").member(key);
    for (std::size_t a = 0; a < to.size(); ++a)
      of.numbers(name_of(static_cast<Algorithm>(a)), to[a]);
  };
  latency("call", tables.call);
  latency("nvlink", tables.nvlink);
  latency("pcie", tables.pcie);
  latency("network", tables.network);
  const auto from = [](const Reader& row) {
    return static_cast<std::int32_t>(row.integer("from_compute_capability", -1));
  };
  each(json, "generations", report, [&](const Reader& row) {
    TunerTables::Generation to{.from = from(row),
                               .ring_ll128 = row.number("ring_ll128_gb_per_s"),
                               .nvls_efficiency = row.number("nvls_efficiency"),
                               .ring_over_nodes = row.number("ring_over_nodes_latency_factor")};
    row.numbers("ll_gb_per_s", to.ll);
    row.numbers("tree_ll128_gb_per_s", to.tree_ll128);
    row.numbers("tree_gb_per_s", to.tree);
    row.numbers("nvls_tree_gb_per_s", to.nvls_tree);
    tables.generations.push_back(to);
  });
  each(json, "nvlink_gb_per_s", report, [&](const Reader& row) {
    tables.nvlinks.push_back({from(row), row.number("gb_per_s")});
  });
  for (std::size_t p = 0; p < kNumProtocols; ++p) {
    in.member("tree_correction_by_log2_of_64_bytes")
        .numbers(name_of(static_cast<Protocol>(p)), tables.tree_correction[p]);
  }
  if (tables.generations.size() < 2 || tables.nvlinks.empty()) {
    report.fail(json.line, "tuner", "needs two generations and an NVLink");
  }
  return tables;
}

bool starts_with(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool describes(const CollectiveSystem& system, const Cluster& cluster) {
  return system.architecture == cluster.gpu.architecture &&
         system.scale_up == cluster.scale_up.kind &&
         cluster.gpu.name.find(system.gpu_contains) != std::string::npos &&
         starts_with(cluster.nics.kind, system.nic_kind);
}

}  // namespace

Result<CollectiveTables> read_collective_tables(const std::string& path) {
  const Result<JsonValue> file = read_json(path);
  if (!file) return file.error();
  JsonReport report(path);
  CollectiveTables tables;
  tables.path = path;
  const JsonValue* constants = file.value().given("constants");
  if (constants == nullptr) return json_error(path, file.value().line, "constants", "is missing");
  tables.constants = read_constants(Reader(*constants, "constants", report));
  tables.dispatch = read_dispatch(Reader(file.value(), "", report).member("dispatch"));
  const JsonValue* tuner = file.value().given("tuner");
  if (tuner == nullptr) report.fail(file.value().line, "tuner", "is missing");
  if (tuner != nullptr) tables.tuner = read_tuner(*tuner, report);
  each(file.value(), "systems", report,
       [&](const Reader& in) { tables.systems.push_back(read_system(in)); });
  each(file.value(), "fits", report, [&](const Reader& in) { read_fits(in, tables.fits); });
  each(file.value(), "nics", report,
       [&](const Reader& in) { tables.nics.push_back(read_nic(in)); });
  if (!report.ok()) return report.error();
  for (const CollectiveFit& fit : tables.fits) {
    if (fit.ranks < 2 || fit.nodes < 1 || fit.bus_bandwidth <= 0) {
      return json_error(path, 0, "fits", "a row needs ranks > 1, nodes and a bus bandwidth");
    }
  }
  return tables;
}

Result<CollectiveTables> shipped_collective_tables() {
  return read_collective_tables(shipped_directory() + "/kernels/collectives.json");
}

CollectiveModel make_collective_model(const CollectiveTables& tables, const Cluster& cluster) {
  CollectiveModel model;
  model.constants = tables.constants;
  model.dispatch = tables.dispatch;
  model.tuner = tables.tuner;
  const auto system = std::find_if(
      tables.systems.begin(), tables.systems.end(),
      [&](const CollectiveSystem& candidate) { return describes(candidate, cluster); });
  if (system != tables.systems.end()) {
    model.system = *system;
    for (const std::string& name : {system->name, system->same_as}) {
      for (const CollectiveFit& fit : tables.fits) {
        if (fit.system == name) model.fits.push_back(fit);
      }
    }
  }
  for (const NicConstants& nic : tables.nics) {  // the first that fits; "" fits all and comes last
    if (starts_with(cluster.nics.kind, nic.kind)) {
      model.nic = nic;
      break;
    }
  }
  if (cluster.nics.one_group_fraction > 0) {
    model.nic.one_group_fraction = cluster.nics.one_group_fraction;
  }
  if (cluster.calibration) {
    model.measured = cluster.calibration->collectives;
    std::stable_sort(model.measured.begin(), model.measured.end(),
                     [](const CollectivePoint& a, const CollectivePoint& b) {
                       return std::tie(a.op, a.nodes, a.ranks, a.bytes) <
                              std::tie(b.op, b.nodes, b.ranks, b.bytes);
                     });
  }
  return model;
}

}  // namespace rehearse::sim
