// SPDX-License-Identifier: Apache-2.0
// Reads NCCL's numbers from scenarios/kernels/collectives.json.
#include <span>
#include <string>

#include "sim/network/nccl_tuner.h"

namespace rehearse::sim {
namespace {

// Members of the object `tuner`; the report keeps the first thing that is wrong.
class Reader {
 public:
  Reader(const JsonValue& tuner, JsonReport& report) : tuner_(tuner), report_(report) {}

  TunerTables read() {
    TunerTables tables;
    const JsonValue& latency = member(tuner_, "latency_us");
    by_algorithm(member(latency, "call"), tables.call);
    by_algorithm(member(latency, "nvlink"), tables.nvlink);
    by_algorithm(member(latency, "pcie"), tables.pcie);
    by_algorithm(member(latency, "network"), tables.network);
    for (const JsonValue& row : member(tuner_, "generations").items) {
      TunerTables::Generation to{
          .from = capability(row, tables.generations),
          .ring_ll128 = number(member(row, "ring_ll128_gb_per_s")),
          .nvls_efficiency = number(member(row, "nvls_efficiency")),
          .ring_over_nodes = number(member(row, "ring_over_nodes_latency_factor"))};
      numbers(member(row, "ll_gb_per_s"), to.ll);
      numbers(member(row, "tree_ll128_gb_per_s"), to.tree_ll128);
      numbers(member(row, "tree_gb_per_s"), to.tree);
      numbers(member(row, "nvls_tree_gb_per_s"), to.nvls_tree);
      tables.generations.push_back(to);
    }
    const JsonValue& corrections = member(tuner_, "tree_correction_by_log2_of_64_bytes");
    for (std::size_t p = 0; p < kNumProtocols; ++p) {
      numbers(p < corrections.items.size() ? corrections.items[p] : kNothing,
              tables.tree_correction[p]);
    }
    for (const JsonValue& row : member(tuner_, "nvlink_gb_per_s").items) {
      tables.nvlinks.push_back(
          {.from = capability(row, tables.nvlinks), .gb_per_s = number(member(row, "gb_per_s"))});
    }
    if (tables.generations.size() < 2) fail(tuner_, "generations: needs at least two rows");
    if (tables.nvlinks.empty()) fail(tuner_, "nvlink_gb_per_s: needs at least one row");
    return tables;
  }

 private:
  static inline const JsonValue kNothing;

  void fail(const JsonValue& at, const std::string& what) { report_.fail(at.line, "tuner", what); }

  const JsonValue& member(const JsonValue& in, std::string_view key) {
    const JsonValue* found = in.given(key);
    if (found == nullptr) fail(in, std::string(key) + " is missing");
    return found == nullptr ? kNothing : *found;
  }
  double number(const JsonValue& value) {
    if (!value.is_number() || value.number < 0) fail(value, "must be a number of at least 0");
    return value.number;
  }
  void numbers(const JsonValue& list, std::span<double> to) {
    if (list.items.size() != to.size()) {
      return fail(list, "must be a list of " + std::to_string(to.size()) + " numbers");
    }
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = number(list.items[i]);
  }
  void by_algorithm(const JsonValue& in, TunerTables::PerAlgorithm& to) {
    for (std::size_t a = 0; a < kNumTunerAlgorithms; ++a) {
      numbers(member(in, name_of(static_cast<Algorithm>(a))), to[a]);
    }
  }
  // Ascends from 0 down the rows.
  template <class Row>
  std::int32_t capability(const JsonValue& row, const std::vector<Row>& before) {
    const JsonValue& value = member(row, "from_compute_capability");
    const std::int64_t from = value.integer;
    const bool ascends = before.empty() ? from == 0 : from > before.back().from;
    if (!value.is(JsonKind::Integer) || !ascends || from > 1000) {
      fail(row, "from_compute_capability ascends from 0");
      return 0;
    }
    return static_cast<std::int32_t>(from);
  }

  const JsonValue& tuner_;
  JsonReport& report_;
};

}  // namespace

TunerTables read_tuner_tables(const JsonValue& tuner, JsonReport& report) {
  return Reader(tuner, report).read();
}

}  // namespace rehearse::sim
