// SPDX-License-Identifier: Apache-2.0
// Cluster and fabric files. What may stand there is checked against the tables of cluster_keys.cc
// first; from then on a value that is given has the right kind and lies in its range.
#include <algorithm>

#include "schedules/base/files.h"
#include "schedules/base/json_keys.h"
#include "schedules/base/json_reader.h"
#include "schedules/scenario/generations.h"
#include "sim/cluster/calibration_reader.h"
#include "sim/cluster/cluster.h"
#include "sim/cluster/cluster_keys.h"

namespace rehearse::sim {
namespace {

constexpr double kGb = 1e9, kTera = 1e12;
constexpr std::int64_t kMostOnATorus = 4096;

// The members of one object, by unit.
class Section {
 public:
  explicit Section(const JsonValue* object) : object_(object) {}
  explicit operator bool() const { return object_ != nullptr; }

  Section section(std::string_view key) const { return Section(given(key)); }
  const JsonValue* given(std::string_view key) const {
    return object_ == nullptr ? nullptr : object_->given(key);
  }
  std::optional<double> number(std::string_view key) const {
    const JsonValue* value = given(key);
    return value == nullptr ? std::nullopt : std::optional(value->number);
  }
  double number(std::string_view key, double otherwise) const {
    return number(key).value_or(otherwise);
  }
  std::int32_t count(std::string_view key, std::int32_t otherwise = 0) const {
    const JsonValue* value = given(key);
    return value == nullptr ? otherwise : static_cast<std::int32_t>(value->integer);
  }
  bool flag(std::string_view key, bool otherwise) const {
    const JsonValue* value = given(key);
    return value == nullptr ? otherwise : value->boolean;
  }
  std::string text(std::string_view key) const {
    const JsonValue* value = given(key);
    return value == nullptr ? "" : value->text;
  }
  std::optional<BytesPerSecond> bandwidth(std::string_view key) const {  // decimal GB/s
    const std::optional<double> gb_per_s = number(key);
    if (!gb_per_s) return {};
    return BytesPerSecond{*gb_per_s * kGb};
  }
  std::optional<double> rate(std::string_view key) const {  // TFLOP/s
    const std::optional<double> tflops = number(key);
    if (!tflops) return {};
    return *tflops * kTera;
  }

 private:
  const JsonValue* object_;
};

// What files of before `vendor` and `product_types` left to be derived: a GPU with xGMI links or of
// CDNA 3 is AMD's, any other with a compute capability NVIDIA's; it has the products that have a
// rate, block-scaled ones from capability 10.0 on.
std::string derived_vendor(const Section& gpu) {
  if (gpu.given("xgmi") != nullptr || gpu.text("architecture") == "cdna3") return "amd";
  return gpu.count("compute_capability") > 0 ? "nvidia" : "";
}
bool derived_product(const Cluster& cluster, ComputeType type) {
  const bool block = is_block_scaled(type);
  return cluster.peak_flops(type) && (!block || cluster.gpu.compute_capability.value_or(0) >= 100);
}

GpuCalibration read_gpu_calibration(const Section& from) {
  return {.gemm_typical_fraction = from.number("gemm_typical_fraction_of_peak"),
          .gemm_best_fraction = from.number("gemm_best_fraction_of_peak"),
          .memory_bandwidth_fraction = from.number("memory_bandwidth_fraction"),
          .all_reduce_8_alpha_us = from.number("all_reduce_8_alpha_us"),
          .all_reduce_8_asymptotic_busbw = from.bandwidth("all_reduce_8_asymptotic_busbw_gb_per_s"),
          .all_reduce_8_busbw = from.bandwidth("all_reduce_8_busbw_gb_per_s"),
          .nvls_busbw = from.bandwidth("nvls_busbw_gb_per_s"),
          .ring_busbw = from.bandwidth("ring_busbw_gb_per_s")};
}

Gpu read_gpu(const Section& from) {
  const Section peaks = from.section("peak_dense_tflops"), pcie = from.section("pcie");
  const Section links =
      from.given("nvlink") != nullptr ? from.section("nvlink") : from.section("xgmi");
  Gpu gpu;
  gpu.name = from.text("name");
  gpu.vendor = from.given("vendor") != nullptr ? from.text("vendor") : derived_vendor(from);
  gpu.architecture = from.text("architecture");
  const std::int32_t capability = from.count("compute_capability");
  if (gpu.vendor == kNvidia && capability > 0) gpu.compute_capability = capability;
  gpu.sm_count = from.count("sm_count");
  gpu.tensor_clock_mhz = from.number("tensor_clock_mhz", 0);
  gpu.peaks = {.fp32_vector = peaks.rate("fp32_vector"),
               .tf32 = peaks.rate("tf32"),
               .fp16 = peaks.rate("fp16"),
               .bf16 = peaks.rate("bf16"),
               .fp8 = peaks.rate("fp8"),
               .nvfp4 = peaks.rate("nvfp4")};
  gpu.memory_capacity_gb = from.number("memory_capacity_gb", 0);
  gpu.usable_memory_gib = from.number("usable_memory_gib");
  gpu.memory_bandwidth = from.bandwidth("memory_bandwidth_gb_per_s").value_or(BytesPerSecond{});
  gpu.l2_cache_mib = from.number("l2_cache_mib", 0);
  gpu.tdp_w = from.number("tdp_w", 0);
  gpu.pcie = {.generation = pcie.count("generation"),
              .lanes = pcie.count("lanes"),
              .bandwidth = pcie.bandwidth("gb_per_s_per_direction").value_or(BytesPerSecond{})};
  gpu.nvlink = links.bandwidth("total_gb_per_s_per_direction");
  gpu.nvlink_generation = links.count("generation");
  gpu.nvlink_links = links.count("links");
  gpu.c2c_to_cpu = from.bandwidth("c2c_to_cpu_gb_per_s_per_direction");
  gpu.peer_to_peer = from.flag("peer_to_peer", true);
  gpu.calibration = read_gpu_calibration(from.section("calibration"));
  return gpu;
}

std::vector<TorusAxis> read_axes(const JsonValue* list) {
  std::vector<TorusAxis> axes;
  if (list == nullptr) return axes;
  for (const JsonValue& item : list->items) {
    const Section axis(&item);
    axes.push_back(
        {.size = axis.count("size"),
         .bandwidth_per_link =
             axis.bandwidth("gb_per_s_per_direction_per_link").value_or(BytesPerSecond{}),
         .open = axis.flag("open", false)});
  }
  return axes;
}

ScaleUp read_scale_up(const Section& from) {
  const auto kind = std::ranges::find(kScaleUpNames, from.text("kind")) - kScaleUpNames.begin();
  const Section achievable = from.section("all_reduce_achievable");
  return {.kind = static_cast<ScaleUpKind>(kind),
          .axes = read_axes(from.given("axes")),
          .bandwidth_per_gpu = from.bandwidth("gb_per_s_per_direction_per_gpu"),
          .bandwidth_per_pair = from.bandwidth("gb_per_s_per_direction_per_pair"),
          .bandwidth_per_link = from.bandwidth("gb_per_s_per_direction_per_link"),
          .switches = from.count("switches"),
          .links_per_pair = from.count("links_per_pair"),
          .hop_latency_us = from.number("hop_latency_us", 0),
          .achievable_fraction = from.number("achievable_fraction"),
          .achievable_2 = achievable.number("ranks_2"),
          .achievable_4 = achievable.number("ranks_4"),
          .achievable_8 = achievable.number("ranks_8"),
          .reference = from.bandwidth("reference_gb_per_s"),
          .in_network_reduction = from.flag("nvls_in_network_reduction", false),
          .blocking = from.flag("blocking", false),
          .peer_to_peer = from.flag("peer_to_peer", true)};
}

NodePcie read_pcie(const Section& from, const Gpu& gpu) {
  const bool coherent = from.text("kind") == "nvlink_c2c";
  const auto link = from.bandwidth(coherent ? "gb_per_s_per_direction_per_cpu"
                                            : "gb_per_s_per_direction_per_link");
  return {.generation = from.count("generation", gpu.pcie.generation),
          .switches = from.count("switches"),
          .gpus_per_switch = from.count("gpus_per_switch"),
          .nics_per_switch = from.count("nics_per_switch"),
          .bandwidth_per_link = link.value_or(gpu.pcie.bandwidth),
          .coherent = coherent,
          .gpus_per_cpu = from.count("gpus_per_cpu")};
}

Nics read_nics(const Section& from, std::int32_t gpus_per_node) {
  Nics nics;
  if (!from) return nics;
  nics.count = from.count("count");
  nics.bandwidth_each = from.bandwidth("gb_per_s_per_direction_each").value_or(BytesPerSecond{});
  nics.kind = from.text("kind");
  nics.one_way_latency_us = from.number("one_way_latency_us", 0);
  nics.gpu_direct_rdma = from.flag("gpu_direct_rdma", false);
  const double even = static_cast<double>(gpus_per_node) / std::max(1, nics.count);
  nics.gpus_per_nic = from.number("gpus_per_nic", even);
  nics.one_group_fraction = from.number("one_group_fraction", 0);
  nics.assumed = from.flag("assumed", false);
  return nics;
}

Fabric read_fabric_object(const Section& from) {
  constexpr double kGbitToBytes = 1e9 / 8;
  const std::string topology = from.text("topology");
  return {.id = from.text("id"),
          .topology = topology == "fat_tree"                  ? Topology::FatTree
                      : topology == "rail_optimized_fat_tree" ? Topology::RailOptimizedFatTree
                                                              : Topology::ThreeLevelClos,
          .levels = from.count("levels", 2),
          .leaf_ports = from.count("leaf_ports"),
          .port_bandwidth = {from.number("port_gbit_per_s", 0) * kGbitToBytes},
          .rails = from.count("rails", 1),
          .nodes_per_scalable_unit = from.count("nodes_per_scalable_unit"),
          .pod_gpus = from.count("pod_gpus"),
          .oversubscription_leaf_to_spine = from.number("oversubscription_leaf_to_spine", 1),
          .oversubscription_aggregation_to_core =
              from.number("oversubscription_aggregation_to_core", 1),
          .switch_latency_us = from.number("switch_latency_us", 0),
          .cable_latency_us_per_hop = from.number("cable_latency_us_per_hop", 0),
          .between_pods_latency_us = from.number("between_pods_latency_us", 0)};
}

Result<Fabric> read_fabric(const std::string& path) {
  Result<JsonValue> root = read_json(path);
  if (!root) return root.error();
  JsonValue document = std::move(root).value();
  drop_sources(document);
  JsonReport report(path);
  check_keys(document, fabric_key_table(), "", report);
  if (!report.ok()) return report.error();
  return read_fabric_object(Section(&document));
}

class ClusterReader {
 public:
  ClusterReader(const JsonValue& root, const std::string& path, const std::string& key)
      : root_(root), from_(&root), key_(key), report_(path) {}

  Result<Cluster> read() {
    check_keys(root_, cluster_key_table(), key_, report_);
    if (!report_.ok()) return report_.error();
    cluster_.path = report_.path();
    cluster_.id = from_.given("id") != nullptr ? from_.text("id") : stem_of(cluster_.path);
    cluster_.name = from_.given("name") != nullptr ? from_.text("name") : cluster_.id;
    cluster_.gpu = read_gpu(from_.section("gpu"));
    read_products(from_.section("gpu").given("product_types"));
    cluster_.gpus_per_node = from_.count("gpus_per_node", 1);
    cluster_.workers = from_.count("workers", 0);
    cluster_.scale_up = read_scale_up(from_.section("scale_up"));
    cluster_.pcie = read_pcie(from_.section("pcie"), cluster_.gpu);
    cluster_.nics = read_nics(from_.section("nics"), cluster_.gpus_per_node);
    read_host(from_.section("host"));
    read_nvme(from_.section("nvme"));
    read_correction(from_.section("correction"));
    read_economy();
    check();
    fabric();
    calibration();
    if (nested_error_) return *nested_error_;
    if (!report_.ok()) return report_.error();
    return std::move(cluster_);
  }

 private:
  void fail(std::string_view key, const std::string& what) {
    const JsonMember* member = root_.find(key.substr(0, key.find('.')));
    report_.fail(member == nullptr ? root_.line : member->line, join_key(key_, key), what);
  }

  void read_products(const JsonValue* given) {
    for (std::size_t i = 0; i < cluster_.gpu.multiplies.size(); ++i) {
      const auto type = static_cast<ComputeType>(i);
      if (given == nullptr) {
        cluster_.gpu.multiplies[i] = derived_product(cluster_, type);
        continue;
      }
      const auto is_this = [i](const JsonValue& word) { return word.text == kComputeTypeNames[i]; };
      cluster_.gpu.multiplies[i] = std::ranges::any_of(given->items, is_this);
    }
  }

  void read_host(const Section& from) {
    cluster_.host = {.sockets = from.count("sockets", 1),
                     .memory_gib = from.number("memory_gib", 0),
                     .cpu = from.text("cpu"),
                     .inter_socket = from.bandwidth("inter_socket_gb_per_s_per_direction")};
  }

  void read_nvme(const Section& from) {
    cluster_.nvme = {.read = from.bandwidth("read_gb_per_s").value_or(BytesPerSecond{}),
                     .write = from.bandwidth("write_gb_per_s").value_or(BytesPerSecond{}),
                     .capacity_gb = from.number("capacity_gb", 0)};
  }

  void read_correction(const Section& from) {
    for (const CorrectionRow& row : kCorrections) {
      cluster_.correction.*row.field = from.number(row.name, 1);
    }
  }

  void read_economy() {
    cluster_.price_usd_per_gpu_hour = from_.number("price_per_gpu_hour");
    const std::optional<double> node = from_.number("price_usd_per_node_hour");
    if (!cluster_.price_usd_per_gpu_hour && node) {
      cluster_.price_usd_per_gpu_hour = *node / cluster_.gpus_per_node;
    }
    cluster_.failures_per_million_gpu_hours = from_.number("failures_per_million_gpu_hours");
    cluster_.checkpoint_bandwidth = from_.bandwidth("checkpoint_gb_per_s");
    cluster_.system_power_max_w = from_.number("system_power_max_w");
  }

  void check() {
    const PeakRates& peaks = cluster_.gpu.peaks;
    if (!peaks.fp32_vector && !peaks.tf32 && !peaks.fp16 && !peaks.bf16 && !peaks.fp8) {
      fail("gpu.peak_dense_tflops", "no peak rate is given");
    }
    check_generation_and_products();
    check_torus();
    const ScaleUp& scale_up = cluster_.scale_up;
    const bool tree = scale_up.kind == ScaleUpKind::PcieTree;
    if (!tree && !scale_up.bandwidth_per_gpu) {
      fail("scale_up.gb_per_s_per_direction_per_gpu", "is required unless kind is pcie_tree");
    }
    if (tree && cluster_.scale_up_bandwidth().value <= 0) {
      fail("gpu.pcie", "is required where scale_up is a pcie_tree");
    }
    if (scale_up.kind == ScaleUpKind::FullMesh && !scale_up.bandwidth_per_pair) {
      fail("scale_up.gb_per_s_per_direction_per_pair", "is required where kind is full_mesh");
    }
    const double usable = cluster_.gpu.usable_memory_gib.value_or(0);
    if (usable > cluster_.gpu.memory_capacity_gb) {
      fail("gpu.usable_memory_gib", json_number(usable) + " is more than memory_capacity_gb " +
                                        json_number(cluster_.gpu.memory_capacity_gb));
    }
  }

  // Its axes say what a GPU has together.
  void check_torus() {
    ScaleUp& scale_up = cluster_.scale_up;
    const bool torus = scale_up.kind == ScaleUpKind::Torus;
    if (torus == scale_up.axes.empty()) {
      return fail("scale_up.axes",
                  torus ? "is required where kind is torus" : "is a torus's alone");
    }
    if (!torus) return;
    std::int64_t gpus = 1;
    double all = 0;
    for (const TorusAxis& axis : scale_up.axes) {
      gpus = std::min<std::int64_t>(gpus * axis.size, kMostOnATorus + 1);
      all += axis.links() * axis.bandwidth_per_link.value;
    }
    if (gpus != cluster_.gpus_per_node) {
      return fail("scale_up.axes", "have places for " + std::to_string(gpus) +
                                       " GPUs: a node has " +
                                       std::to_string(cluster_.gpus_per_node));
    }
    if (gpus > kMostOnATorus) {
      return fail("scale_up.axes", "have more than " + std::to_string(kMostOnATorus) + " places");
    }
    if (!scale_up.bandwidth_per_gpu) scale_up.bandwidth_per_gpu = BytesPerSecond{all};
  }

  void check_generation_and_products() {
    const Gpu& gpu = cluster_.gpu;
    if (!gpu.architecture.empty() && gpu.architecture != "other") {
      const Result<std::vector<GpuGeneration>> known = shipped_generations();
      if (!known) {
        nested_error_ = known.error();
        return;
      }
      const Result<> is = check_generation(known.value(), gpu.architecture);
      if (!is) fail("gpu.architecture", is.error().message);
    }
    const Section from = from_.section("gpu");
    if (from.given("vendor") != nullptr && gpu.vendor != kNvidia &&
        from.given("compute_capability") != nullptr) {
      fail("gpu.compute_capability", "is NVIDIA's: a GPU of " + json_excerpt(gpu.vendor) +
                                         " has none, and the key is left out");
    }
    if (from.given("product_types") == nullptr) return;
    for (std::size_t i = 0; i < gpu.multiplies.size(); ++i) {
      if (!gpu.multiplies[i] || cluster_.peak_flops(static_cast<ComputeType>(i))) continue;
      fail("gpu.product_types",
           std::string(kComputeTypeNames[i]) + " has no rate in gpu.peak_dense_tflops");
    }
  }

  void fabric() {
    const JsonValue* fabric = from_.given("fabric");
    const JsonValue* id = from_.given("fabric_id");
    if (fabric != nullptr && id != nullptr)
      return fail("fabric_id", "stands beside fabric: one of them");
    if (fabric != nullptr && fabric->is(JsonKind::Object)) {
      cluster_.fabric = read_fabric_object(Section(fabric));
      return;
    }
    const JsonValue* name = fabric != nullptr ? fabric : id;
    if (name == nullptr) return;
    const auto found = find_file(name->text, report_.path(), "clusters/fabrics");
    if (!found) {
      return fail(fabric != nullptr ? "fabric" : "fabric_id",
                  "no such file: " + json_excerpt(name->text));
    }
    Result<Fabric> read = read_fabric(*found);
    if (read) {
      cluster_.fabric = std::move(read).value();
    } else {
      nested_error_ = read.error();
    }
  }

  void calibration() {
    const JsonValue* from = from_.given("calibration");
    if (from == nullptr || nested_error_) return;
    if (from->is(JsonKind::Object)) {
      cluster_.calibration = calibration_of(*from, join_key(key_, "calibration"), report_);
    } else {
      const auto found = find_file(from->text, report_.path(), "clusters");
      if (!found) return fail("calibration", "no such file: " + json_excerpt(from->text));
      Result<Calibration> read = read_calibration(*found);
      if (!read) {
        nested_error_ = read.error();
        return;
      }
      cluster_.calibration = std::move(read).value();
    }
    fill_in_gemm_times();
  }

  // A point has a time or a fraction of the GPU's peak: from one the other follows.
  void fill_in_gemm_times() {
    for (GemmPoint& point : cluster_.calibration->gemm) {
      const std::optional<double> peak = cluster_.peak_flops(point.type);
      if (!peak) continue;
      const double flops = 2.0 * static_cast<double>(point.m) * static_cast<double>(point.n) *
                           static_cast<double>(point.k) * static_cast<double>(point.batch);
      const double at_peak_us = flops / *peak * 1e6;
      if (point.time_us <= 0) {
        point.time_us = at_peak_us / point.fraction_of_peak;
      } else {
        point.fraction_of_peak = at_peak_us / point.time_us;
      }
    }
  }

  const JsonValue& root_;
  Section from_;
  std::string key_;
  JsonReport report_;
  std::optional<Error> nested_error_;  // of another file
  Cluster cluster_;
};

}  // namespace

Result<Cluster> read_cluster(const ClusterSource& source) {
  const bool is_inline = !source.inline_json.empty();
  Result<JsonValue> root =
      is_inline ? parse_json(source.inline_json, source.path, source.line) : read_json(source.path);
  if (!root) return root.error();
  JsonValue document = std::move(root).value();
  drop_sources(document);
  Result<Cluster> cluster = ClusterReader(document, source.path, is_inline ? "cluster" : "").read();
  if (!cluster || source.domain_gpus == 0) return cluster;
  return with_domain(std::move(cluster).value(), source.domain_gpus);
}

}  // namespace rehearse::sim
