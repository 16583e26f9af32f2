// SPDX-License-Identifier: Apache-2.0
// Reads scenarios/kernels/: default.json, then the architecture's file, then its GPU type's
// members.
#include "sim/compute/kernel_scalars.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "schedules/scenario/plan_names.h"

namespace rehearse::sim {
namespace {

struct ScalarRow {
  std::string_view section, key;
  double KernelScalars::*member;
  double low, high;  // what the value can mean
};

using S = KernelScalars;
constexpr ScalarRow kScalars[] = {
    {"matrix_products", "sustained_fraction", &S::gemm_sustained, 0.01, 1},
    {"matrix_products", "burst_fraction", &S::gemm_burst, 0.01, 1},
    {"matrix_products", "memory_fraction", &S::gemm_memory, 0.01, 1},
    {"matrix_products", "prologue_k", &S::gemm_prologue, 0, 1e4},
    {"matrix_products", "weight_gradient_factor", &S::weight_gradient, 0.1, 10},
    {"matrix_products", "batched_fraction", &S::batched_sustained, 0.01, 1},
    {"matrix_products", "fp8_rate", &S::fp8_rate, 0.1, 8},
    {"matrix_products", "block_fp8_fraction", &S::block_fp8, 0.01, 1},
    {"matrix_products", "block_fp8_prologue_k", &S::block_fp8_prologue, 0, 1e4},
    {"matrix_products", "block_fp8_weight_gradient_fraction", &S::block_fp8_weight_gradient, 0.01,
     1},
    {"matrix_products", "block_fp8_weight_gradient_prologue_k",
     &S::block_fp8_weight_gradient_prologue, 0, 1e4},
    {"matrix_products", "kernel_us", &S::kernel_us, 0, 1e3},
    {"matrix_products", "near_distance", &S::near_distance, 0, 100},
    {"matrix_products", "grouped_streams", &S::grouped_streams, 1, 1024},
    {"attention", "half_rate_tokens", &S::attention_length, 0, 1e6},
    {"scans", "tflops", &S::scan_tflops, 0.1, 1e5},
    {"scans", "memory_fraction", &S::scan_memory, 0.01, 1},
    {"scans", "chunk_us", &S::scan_chunk_us, 0, 1e3},
    {"power", "idle_w", &S::power_idle_w, 0, 1e4},
    {"power", "pj_per_flop", &S::pj_per_flop, 0, 1e3},
    {"power", "fp8_energy", &S::fp8_energy, 0, 10},
    {"power", "pj_per_byte", &S::pj_per_byte, 0, 1e5},
    {"power", "clock_exponent", &S::clock_exponent, 0, 4},
    {"power", "idle_share_of_tdp", &S::idle_share_of_tdp, 0, 1},
    {"host", "issue_us", &S::issue_us, 0, 1e4},
    {"host", "executor_issue_us", &S::executor_issue_us, 0, 1e4},
    {"host", "expert_call_least_us", &S::expert_call_least_us, 0, 1e4},
    {"host", "expert_call_most_us", &S::expert_call_most_us, 0, 1e4},
    {"host", "soft_maximum_exponent", &S::host_exponent, 1, 64},
    {"overlap", "hidden_contention", &S::hidden_contention, 0, 1},
    {"overlap", "data_parallel_slowdown", &S::overlap_slowdown, 0, 0.99},
    {"overlap", "dispatch_slowdown", &S::dispatch_slowdown, 0, 0.99},
    {"overlap", "dispatch_stretch", &S::dispatch_stretch, 0, 0.99},
};

constexpr std::string_view kMemoryNames[kNumMemoryClasses] = {
    "elementwise", "dropout", "activation",    "norm",      "norm_persistent",
    "rope",        "softmax", "cross_entropy", "optimizer", "convolution"};
// Attention in separate kernels has no rate of its own.
constexpr auto kFirstFused = static_cast<std::size_t>(AttentionKernel::Flash1);

struct TableKey {
  std::string_view key;
  MeasuredTable table;
};
constexpr TableKey kTables[] = {
    {"table", MeasuredTable::Products},
    {"table_fp8", MeasuredTable::Fp8Products},
    {"table_fp8_block", MeasuredTable::BlockFp8Products},
    {"table_nvfp4", MeasuredTable::Nvfp4Products},
};

MeasuredTable table_of(ComputeType type) {
  switch (type) {
    case ComputeType::Fp8:
      return MeasuredTable::Fp8Products;
    case ComputeType::Mxfp8:
      return MeasuredTable::BlockFp8Products;
    case ComputeType::Nvfp4:
      return MeasuredTable::Nvfp4Products;
    default:
      return MeasuredTable::Products;
  }
}

// A table that a kernels file names. Read once it is known that no GPU type names another.
struct NamedTable {
  std::string path;
  double scale = 1;
};
using NamedTables = std::array<NamedTable, kNumMeasuredTables>;

GemmEfficiency efficiency_of(const GemmPoint& point) {
  return {.ln_m = std::log(static_cast<double>(point.m)),
          .ln_n = std::log(static_cast<double>(point.n)),
          .ln_k = std::log(static_cast<double>(point.k)),
          .fraction = point.fraction_of_peak,
          .table = table_of(point.type),
          .accumulate = point.accumulate,
          .batched = point.batch > 1};
}

class Reader {
 public:
  Reader(KernelScalars& out, const std::string& path, NamedTables* tables = nullptr)
      : out_(out), report_(path), tables_(tables) {}

  bool ok() const { return report_.ok(); }
  const Error& error() const { return report_.error(); }

  void file(const JsonValue& root, std::string_view gpu) {
    members(root);
    sources(root);
    const JsonValue* types = root.given("types");
    if (types == nullptr) return;
    for (const JsonValue& type : types->items) {
      const JsonValue* name = type.given("name");
      if (name == nullptr || !name->is(JsonKind::String)) {
        report_.fail(type.line, "types.name", "a text is missing");
      } else if (gpu.starts_with(name->text)) {
        members(type);
        sources(type);
      }
    }
  }

  // A calibration's own words: "matrix_products.sustained_fraction", "memory.norm".
  void calibration(const Calibration& calibration) {
    for (const ScalarRow& row : kScalars) {
      const auto value = calibration.scalar(std::string(row.section) + "." + std::string(row.key));
      if (value) out_.*row.member = *value;
    }
    for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
      const auto value = calibration.scalar("memory." + std::string(kMemoryNames[i]));
      if (value) out_.memory[i] = *value;
      if (value) out_.memory_assumed[i] = false;
    }
    for (std::size_t i = kFirstFused; i < kAttentionKernelNames.size(); ++i) {
      const std::string name = "attention." + std::string(kAttentionKernelNames[i]);
      const auto forward = calibration.scalar(name + ".forward");
      const auto backward = calibration.scalar(name + ".backward");
      if (forward) out_.attention_forward[i] = *forward;
      if (backward) out_.attention_backward[i] = *backward;
      if (forward && backward) out_.attention_assumed[i] = false;
    }
  }

 private:
  // Which of the file's scalars have a source. A name that no rate below has is of another kind.
  void sources(const JsonValue& root) {
    const JsonValue* list = root.given("sources");
    if (list == nullptr) return;
    for (const JsonValue& entry : list->items) {
      const JsonValue* of = entry.given("of");
      if (of == nullptr) continue;
      for (const JsonValue& name : of->items) assume(name.text, entry.given("source") == nullptr);
    }
  }
  void assume(std::string_view name, bool assumed) {
    for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
      if (name == "memory." + std::string(kMemoryNames[i])) out_.memory_assumed[i] = assumed;
    }
    for (std::size_t i = kFirstFused; i < kAttentionKernelNames.size(); ++i) {
      if (name == "attention." + std::string(kAttentionKernelNames[i])) {
        out_.attention_assumed[i] = assumed;
      }
    }
    if (name == "matrix_products.sustained_fraction") out_.gemm_assumed = assumed;
    if (name == "matrix_products.batched_fraction") out_.batched_assumed = assumed;
    if (name == "scans.tflops") out_.scan_assumed = assumed;
  }

  void members(const JsonValue& object) {
    for (const JsonMember& member : object.members) {
      if (member.value.is(JsonKind::Object)) section(member);
    }
  }

  void section(const JsonMember& section) {
    for (const JsonMember& member : section.value.members) {
      if (section.key == "memory") {
        memory(member);
      } else if (section.key == "attention" && member.value.is(JsonKind::Object)) {
        attention(member);
      } else if (member.key == "tiles") {
        tiles(member);
      } else if (const TableKey* key = table_key(member.key)) {
        table(member, key->table);
      } else {
        scalar(section.key, member);
      }
    }
  }

  void scalar(const std::string& section, const JsonMember& member) {
    for (const ScalarRow& row : kScalars) {
      if (row.section != section || row.key != member.key) continue;
      out_.*row.member = number(member.value, section + "." + member.key, row.low, row.high);
      return;
    }
    report_.fail(member.line, section + "." + member.key, "unknown key");
  }

  void memory(const JsonMember& member) {
    for (std::size_t i = 0; i < kNumMemoryClasses; ++i) {
      if (kMemoryNames[i] != member.key) continue;
      out_.memory[i] = number(member.value, "memory." + member.key, 0.001, 1);
      return;
    }
    report_.fail(member.line, "memory." + member.key, "unknown key");
  }

  void attention(const JsonMember& member) {
    if (member.key == "torch") {
      return rates_of(member, out_.torch_forward, out_.torch_backward);
    }
    for (std::size_t i = kFirstFused; i < kAttentionKernelNames.size(); ++i) {
      if (kAttentionKernelNames[i] != member.key) continue;
      if (const JsonValue* rates = member.value.given("head_dim")) {
        head_dims(*rates, "attention." + member.key + ".head_dim", out_.head_dims[i]);
      }
      return rates_of(member, out_.attention_forward[i], out_.attention_backward[i]);
    }
    report_.fail(member.line, "attention." + member.key, "unknown key");
  }
  void rates_of(const JsonMember& member, double& forward, double& backward) {
    const JsonValue* of_forward = member.value.given("forward");
    const JsonValue* of_backward = member.value.given("backward");
    if (of_forward == nullptr || of_backward == nullptr) {
      return report_.fail(member.line, "attention." + member.key, "needs forward and backward");
    }
    forward = number(*of_forward, "attention." + member.key, 0.001, 1);
    backward = number(*of_backward, "attention." + member.key, 0.001, 1);
  }

  void tiles(const JsonMember& member) {
    out_.tiles.clear();
    for (const JsonValue& item : member.value.items) {
      if (item.items.size() != 3) {
        report_.fail(item.line, "matrix_products.tiles", "needs [rows, columns, rate]");
        return;
      }
      out_.tiles.push_back(
          {.m = static_cast<std::int32_t>(number(item.items[0], "matrix_products.tiles", 1, 4096)),
           .n = static_cast<std::int32_t>(number(item.items[1], "matrix_products.tiles", 1, 4096)),
           .rate = number(item.items[2], "matrix_products.tiles", 0.01, 1)});
    }
    if (out_.tiles.empty()) report_.fail(member.line, "matrix_products.tiles", "is empty");
  }

  // [[head_dim, rate], ...], ascending.
  void head_dims(const JsonValue& list, const std::string& name, std::vector<HeadDimRate>& out) {
    out.clear();
    for (const JsonValue& item : list.items) {
      if (item.items.size() != 2) return report_.fail(item.line, name, "needs [head_dim, rate]");
      const double above = out.empty() ? 1 : out.back().head_dim;
      out.push_back({.head_dim = number(item.items[0], name, above, 4096),
                     .rate = number(item.items[1], name, 0.01, 10)});
    }
  }

  static const TableKey* table_key(std::string_view key) {
    const auto* const found = std::ranges::find(kTables, key, &TableKey::key);
    return found == std::end(kTables) ? nullptr : found;
  }

  // A file of measured products beside this one: points of the GPU type, not of one machine.
  void table(const JsonMember& member, MeasuredTable of) {
    const std::string name = "matrix_products." + member.key;
    const JsonValue* file = member.value.given("file");
    const JsonValue* scale = member.value.given("scale");
    const JsonValue* near = member.value.given("near_distance");
    const JsonValue* gradients = member.value.given("for_weight_gradients");
    if (file == nullptr || scale == nullptr || near == nullptr || tables_ == nullptr) {
      report_.fail(member.line, name, "needs file, scale and near_distance");
      return;
    }
    out_.gemm_tables[static_cast<std::size_t>(of)] = {
        .file = file->text,
        .near_distance = number(*near, name + ".near_distance", 0, 100),
        .for_weight_gradients = gradients != nullptr && gradients->boolean};
    const std::filesystem::path folder = std::filesystem::path(report_.path()).parent_path();
    (*tables_)[static_cast<std::size_t>(of)] = {.path = (folder / file->text).string(),
                                                .scale = number(*scale, name + ".scale", 0.01, 2)};
  }

  double number(const JsonValue& value, const std::string& key, double low, double high) {
    if (!value.is_number() || !(value.number >= low && value.number <= high)) {
      report_.fail(value.line, key,
                   "must be a number from " + json_number(low) + " to " + json_number(high));
      return low;
    }
    return value.number;
  }

  KernelScalars& out_;
  JsonReport report_;
  NamedTables* tables_;
};

// Adds the points of a file of measured products.
Result<> read_table(const NamedTable& table, MeasuredTable of, KernelScalars& out) {
  const Result<JsonValue> root = read_json(table.path);
  if (!root) return root.error();
  JsonReport report(table.path);
  const JsonValue* rows = root.value().given("rows");
  if (rows == nullptr) return {};
  out.gemm_points.reserve(out.gemm_points.size() + rows->items.size());
  for (const JsonValue& row : rows->items) {
    if (row.items.size() != 6) {
      report.fail(row.line, "rows", "a row needs six columns");
      break;
    }
    const double fraction = row.items[5].number;
    const GemmPoint point{.m = row.items[0].integer,
                          .n = row.items[1].integer,
                          .k = row.items[2].integer,
                          .accumulate = row.items[4].boolean,
                          .fraction_of_peak = table.scale * fraction};
    if (point.m < 1 || point.n < 1 || point.k < 1) {
      report.fail(row.line, "rows", "m, n and k must be at least 1");
    } else if (!(fraction >= 1e-6 && fraction <= 1)) {
      report.fail(row.line, "rows", "a fraction must be a number from 1e-06 to 1");
    }
    if (!report.ok()) break;
    GemmEfficiency efficiency = efficiency_of(point);
    efficiency.table = of;
    out.gemm_points.push_back(efficiency);
  }
  if (!report.ok()) return report.error();
  return {};
}

// Applies one file of the kernels directory; false where it does not exist.
Result<bool> apply_file(const std::string& path, std::string_view gpu, KernelScalars& out,
                        NamedTables& tables) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return false;
  const Result<JsonValue> root = read_json(path);
  if (!root) return root.error();
  Reader reader(out, path, &tables);
  reader.file(root.value(), gpu);
  if (!reader.ok()) return reader.error();
  out.source = path;
  return true;
}

}  // namespace

Result<KernelScalars> read_kernel_scalars(const Cluster& cluster) {
  return read_kernel_scalars(cluster, shipped_directory() + "/kernels");
}

Result<KernelScalars> read_kernel_scalars(const Cluster& cluster, const std::string& directory) {
  KernelScalars scalars;
  NamedTables tables;
  const std::string folder = directory + "/";
  const Result<bool> defaults =
      apply_file(folder + "default.json", cluster.gpu.name, scalars, tables);
  if (!defaults) return defaults.error();
  if (!defaults.value()) return Error{folder + "default.json: cannot read"};
  const Result<bool> own =
      apply_file(folder + cluster.gpu.architecture + ".json", cluster.gpu.name, scalars, tables);
  if (!own) return own.error();
  const bool calibrated = cluster.calibration && !cluster.calibration->gemm.empty();
  for (std::size_t i = 0; i < tables.size() && !calibrated; ++i) {
    if (tables[i].path.empty()) continue;
    const Result<> read = read_table(tables[i], static_cast<MeasuredTable>(i), scalars);
    if (!read) return read.error();
  }
  scalars.level = own.value() && !scalars.gemm_assumed ? CostLevel::Formula : CostLevel::Datasheet;
  if (!own.value() && cluster.gpu.calibration.gemm_typical_fraction) {
    scalars.gemm_sustained = *cluster.gpu.calibration.gemm_typical_fraction;
  }
  if (cluster.calibration) {
    Reader(scalars, cluster.calibration->path).calibration(*cluster.calibration);
    if (calibrated) {
      // Measured on this very machine: as far as interpolation of efficiency holds.
      const std::string file = std::filesystem::path(cluster.calibration->path).filename().string();
      for (GemmTable& table : scalars.gemm_tables) table = {.file = file, .near_distance = 0.5};
      for (const GemmPoint& point : cluster.calibration->gemm) {
        scalars.gemm_points.push_back(efficiency_of(point));
      }
    }
    if (cluster.calibration->launch_us) scalars.executor_issue_us = *cluster.calibration->launch_us;
  }
  return scalars;
}

}  // namespace rehearse::sim
