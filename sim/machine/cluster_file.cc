// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/cluster_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "schedules/base/files.h"
#include "schedules/base/json_document.h"
#include "schedules/base/json_reader.h"
#include "sim/cluster/cluster.h"
#include "sim/machine/names.h"

namespace rehearse::sim {
namespace {

constexpr std::array<std::string_view, 7> kOpWords{
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send_recv"};

// How the links of a node's GPUs are laid out.
struct Wiring {
  std::string kind;  // scale_up.kind; empty: not known
  std::int32_t links_per_gpu = 0, links_per_pair = 0;
};

// Links of each GPU to the others together.
std::vector<std::int32_t> link_sums(const NodeTopology& node) {
  std::vector<std::int32_t> sums;
  for (std::int32_t a = 0; a < node.gpus; ++a) {
    std::int32_t sum = 0;
    for (std::int32_t b = 0; b < node.gpus; ++b) sum += node.links_between(a, b);
    sums.push_back(sum);
  }
  return sums;
}

// NVIDIA's hybrid cube mesh of eight: each GPU has four of the others, over one link or two.
bool is_cube_mesh(const NodeTopology& node) {
  if (node.gpus != 8) return false;
  for (std::int32_t a = 0; a < 8; ++a) {
    std::int32_t peers = 0;
    for (std::int32_t b = 0; b < 8; ++b) {
      peers += node.links_between(a, b) > 0 ? 1 : 0;
      if (node.links_between(a, b) > 2) return false;
    }
    if (peers != 4) return false;
  }
  return true;
}

// `links`: that the GPU has, of its description; 0: not known.
Wiring wiring_of(const NodeTopology& node, std::int32_t links, std::vector<std::string>& notes) {
  if (!node.to_switch.empty() && std::ranges::min(node.to_switch) > 0) {
    const auto [least, most] = std::ranges::minmax(node.to_switch);
    if (least != most) notes.push_back("GPUs have unequal numbers of links; the least is taken");
    return {.kind = "nvswitch", .links_per_gpu = least};
  }
  const std::vector<std::int32_t> sums = link_sums(node);
  if (node.gpus == 1 || std::ranges::max(sums) == 0) return {.kind = "pcie_tree"};
  std::int32_t least = 1 << 30, most = 0;  // of a pair
  for (std::int32_t a = 0; a < node.gpus; ++a) {
    for (std::int32_t b = 0; b < a; ++b) {
      least = std::min(least, node.links_between(a, b));
      most = std::max(most, node.links_between(a, b));
    }
  }
  if (least == 0) {
    if (is_cube_mesh(node)) {
      return {.kind = "hybrid_cube_mesh", .links_per_gpu = std::ranges::min(sums)};
    }
    notes.push_back(
        "NVLinks join some pairs of GPUs and not others, which no kind of scale_up is: what passes "
        "between any two is taken to pass PCIe");
    return {.kind = "pcie_tree"};
  }
  if (least != most) {
    notes.push_back("pairs of GPUs have unequal numbers of links; the least is taken");
  }
  // A matrix shows the same bundle for every pair behind a switch: more than a GPU has.
  const bool behind_switch = node.gpus > 2 && least * (node.gpus - 1) > links;
  if (links > 0 && behind_switch) return {.kind = "nvswitch", .links_per_gpu = least};
  if (links == 0 && node.gpus > 2 && node.to_switch.empty()) return {};
  return {.kind = "full_mesh", .links_per_gpu = least * (node.gpus - 1), .links_per_pair = least};
}

void list_unknown(const Json& value, const std::string& key, std::vector<std::string>& out) {
  if (value.is_null()) {
    out.push_back(key);
  } else if (value.is_object()) {
    for (const Json::Member& member : value.members()) {
      list_unknown(member.value, key.empty() ? member.key : key + "." + member.key, out);
    }
  }
}

// Without the members that are null: what a GPU does not have.
Json without_nulls(const Json& object) {
  Json kept = Json::object();
  for (const Json::Member& member : object.members()) {
    if (member.value.is_null()) continue;
    kept[member.key] = member.value.is_object() ? without_nulls(member.value) : member.value;
  }
  return kept;
}

class Maker {
 public:
  Maker(const MachineReport& machine, const MachineNames& names)
      : machine_(machine), names_(names) {}

  Result<ClusterFile> make(const std::string& id) {
    if (const Result<> agreed = agree(); !agreed) return agreed.error();
    if (const Result<> found = find_gpu(); !found) return found.error();
    file_.name = std::to_string(gpus_) + " x " + (gpu_name_.empty() ? "GPU" : gpu_name_);
    Json json{{"schema", "node/1"}, {"id", id}, {"name", file_.name}};
    json["gpu"] = gpu();
    json["gpus_per_node"] = gpus_;
    json["scale_up"] = scale_up();
    json["pcie"] = pcie();
    json["host"] = Json{{"sockets", sockets()},
                        {"memory_gib", machine_.host_memory_gib},
                        {"cpu", or_null(!machine_.cpu.empty() ? machine_.cpu : node_.cpu)}};
    json["nics"] = nics();
    json["fabric"] = nullptr;
    if (Json measured = calibration(id); !measured.is_null()) json["calibration"] = measured;
    for (const std::string_view key : {"price_per_gpu_hour", "failures_per_million_gpu_hours",
                                       "checkpoint_gb_per_s", "system_power_max_w"}) {
      json[key] = nullptr;
    }
    Json sources = Json::array();
    for (const std::string& source : machine_.sources) sources.push_back(source);
    if (!file_.gpu_from.empty()) sources.push_back("gpu: clusters/" + file_.gpu_from + ".json");
    json["sources"] = sources;
    if (!assumed_.empty()) json["assumed"] = Json(assumed_);
    for (const std::string& assumed : assumed_) file_.notes.push_back(assumed);
    list_unknown(json, "", file_.unknown);
    file_.text = json.dump(2) + "\n";
    const Result<Cluster> read = read_cluster({.path = id + ".json", .inline_json = file_.text});
    if (!read) file_.missing = read.error().message;
    return std::move(file_);
  }

 private:
  static Json or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

  // One node of all sources. NCCL sees speeds and switches, nvidia-smi names.
  Result<> agree() {
    if (machine_.nccl) {
      node_ = *machine_.nccl;
      if (machine_.matrix && machine_.matrix->gpus > 0 && machine_.matrix->gpus != node_.gpus) {
        return Error{"nvidia-smi shows " + std::to_string(machine_.matrix->gpus) +
                     " GPUs and NCCL " + std::to_string(node_.gpus) + ": of one node, or not?"};
      }
      if (machine_.matrix && node_.to_switch.empty()) node_.links = machine_.matrix->links;
    } else if (machine_.matrix) {
      node_ = *machine_.matrix;
    }
    gpus_ = node_.gpus;
    std::vector<std::string> called;
    if (machine_.matrix) called = machine_.matrix->gpu_names;
    for (const NcclTestsLog& log : machine_.logs) {
      called.insert(called.end(), log.gpu_names.begin(), log.gpu_names.end());
      if (node_.gpus == 0) gpus_ = std::max(gpus_, log.gpus_per_node);
    }
    std::ranges::sort(called);
    called.erase(std::unique(called.begin(), called.end()), called.end());
    if (called.size() > 1) {
      return Error{"two kinds of GPU, " + json_excerpt(called[0]) + " and " +
                   json_excerpt(called[1]) + ": a cluster has one"};
    }
    if (!called.empty()) gpu_name_ = called[0];
    if (gpus_ == 0) return Error{"no source says how many GPUs the machine has"};
    return {};
  }

  Result<> find_gpu() {
    const GpuNames* row = names_.gpu(gpu_name_, node_.gpu_pci_device);
    if (row == nullptr) {
      const std::string what = !gpu_name_.empty() ? json_excerpt(gpu_name_)
                               : !node_.gpu_pci_device.empty()
                                   ? "PCI device " + node_.gpu_pci_device
                                   : "";
      file_.notes.push_back(what.empty()
                                ? "nobody says which GPU it is: nvidia-smi -L and nccl-tests do"
                                : "the GPU, " + what + ", is none of the shipped ones");
      return {};
    }
    if (gpu_name_.empty()) gpu_name_ = row->names.front();
    file_.gpu_from = row->cluster;
    const std::string path = shipped_directory() + "/clusters/" + row->cluster + ".json";
    const Result<JsonValue> root = read_json(path);
    if (!root) return root.error();
    const JsonValue* gpu = root.value().given("gpu");
    const JsonValue* scale_up = root.value().given("scale_up");
    if (gpu == nullptr || scale_up == nullptr) return Error{path + ": has no gpu or no scale_up"};
    shipped_gpu_ = without_nulls(Json(*gpu));
    shipped_scale_up_ = Json(*scale_up);
    Result<Cluster> read = read_cluster({.path = path});
    if (!read) return read.error();
    shipped_ = std::move(read).value();
    return {};
  }

  Json gpu() {
    if (!shipped_) return unknown_gpu();
    Json gpu = shipped_gpu_;
    if (Json link = pcie_link(); !link.is_null()) gpu["pcie"] = link;
    return gpu;
  }

  Json unknown_gpu() {
    const bool nvidia = gpu_name_.starts_with("NVIDIA") || node_.gpu_pci_vendor == "0x10de";
    const bool amd = gpu_name_.starts_with("AMD") || node_.gpu_pci_vendor == "0x1002";
    return Json{{"name", or_null(gpu_name_)},
                {"vendor", nvidia ? Json("nvidia")
                           : amd  ? Json("amd")
                                  : Json()},
                {"architecture", "other"},
                {"compute_capability", node_.compute_capability},
                {"sm_count", nullptr},
                {"peak_dense_tflops", nullptr},
                {"memory_capacity_gb", nullptr},
                {"memory_bandwidth_gb_per_s", nullptr},
                {"tdp_w", nullptr},
                {"pcie", pcie_link()}};
  }

  // The GPU's link as NCCL saw it; null: nobody said.
  Json pcie_link() const {
    if (!node_.gpu_pcie_gt_per_s || !node_.gpu_pcie_lanes) return {};
    const PcieGeneration* generation = names_.generation(*node_.gpu_pcie_gt_per_s);
    if (generation == nullptr) return {};
    return Json{{"generation", generation->generation},
                {"lanes", *node_.gpu_pcie_lanes},
                {"gb_per_s_per_direction", generation->gb_per_s_per_lane * *node_.gpu_pcie_lanes}};
  }

  double link_gb_per_s() const {
    if (!shipped_ || !shipped_->gpu.nvlink || shipped_->gpu.nvlink_links == 0) return 0;
    return shipped_->gpu.nvlink->value / 1e9 / shipped_->gpu.nvlink_links;
  }

  Json scale_up() {
    Json json = Json::object();
    if (node_.gpus == 0 || (node_.gpus > 1 && node_.links.empty())) {
      json["kind"] = nullptr;
      return json;
    }
    const std::int32_t has = shipped_ ? shipped_->gpu.nvlink_links : 0;
    const Wiring wiring = wiring_of(node_, has, file_.notes);
    const double link = link_gb_per_s();
    const auto of = [&](std::int32_t links) { return link > 0 ? Json(links * link) : Json(); };
    json["kind"] = or_null(wiring.kind);
    if (wiring.kind == "pcie_tree") return json;
    if (has > 0 && wiring.links_per_gpu > 0 && wiring.links_per_gpu < has) {
      file_.notes.push_back("each GPU shows " + std::to_string(wiring.links_per_gpu) + " of its " +
                            std::to_string(has) + " links");
    }
    json["gb_per_s_per_direction_per_gpu"] = of(wiring.links_per_gpu);
    if (wiring.kind == "full_mesh") {
      json["links_per_pair"] = wiring.links_per_pair;
      json["gb_per_s_per_direction_per_pair"] = of(wiring.links_per_pair);
    }
    if (wiring.kind == "hybrid_cube_mesh") json["gb_per_s_per_direction_per_link"] = of(1);
    like_the_shipped_node(json, wiring, has);
    return json;
  }

  // The switch of a GPU with all its links is the one of the shipped node.
  void like_the_shipped_node(Json& json, const Wiring& wiring, std::int32_t has) {
    const bool same = shipped_ && shipped_scale_up_["kind"].is_string() &&
                      shipped_scale_up_["kind"].text() == wiring.kind &&
                      wiring.links_per_gpu == has;
    std::string taken;
    for (const std::string_view key :
         {"hop_latency_us", "nvls_in_network_reduction", "achievable_fraction"}) {
      const Json* value = same ? shipped_scale_up_.find(key) : nullptr;
      json[key] = value == nullptr ? Json() : *value;
      if (value != nullptr && !value->is_null()) {
        taken += (taken.empty() ? "scale_up." : ", ") + std::string(key);
      }
    }
    if (!taken.empty()) assumed_.push_back(taken + ": as in " + file_.gpu_from);
  }

  Json pcie() {
    const PcieGeneration* generation =
        node_.gpu_pcie_gt_per_s ? names_.generation(*node_.gpu_pcie_gt_per_s) : nullptr;
    Json json{{"generation", generation == nullptr ? Json() : Json(generation->generation)},
              {"switches", node_.pcie_switches > 0 ? Json(node_.pcie_switches) : Json()},
              {"gpus_per_switch", nullptr},
              {"nics_per_switch", nullptr}};
    if (node_.pcie_switches == 0) return json;
    // Where every switch has as many.
    std::map<std::int32_t, std::int32_t> gpus, nics;
    for (const std::int32_t one : node_.pcie_switch) ++gpus[one];
    for (const NodeNic* nic : used_nics()) ++nics[nic->pcie_switch];
    const auto even = [&](std::map<std::int32_t, std::int32_t>& counts) -> Json {
      for (std::int32_t i = 1; i < node_.pcie_switches; ++i) {
        if (counts[i] != counts[0]) return {};
      }
      return counts[0];
    };
    if (!gpus.contains(-1)) json["gpus_per_switch"] = even(gpus);
    if (!nics.contains(-1)) json["nics_per_switch"] = even(nics);
    return json;
  }

  Json sockets() {
    if (machine_.sockets) return *machine_.sockets;
    std::vector<std::int32_t> numa = node_.numa;
    if (machine_.matrix && numa.empty()) numa = machine_.matrix->numa;
    if (numa.empty() || numa.size() > 2) return {};
    const auto sockets = static_cast<std::int32_t>(numa.size());
    assumed_.push_back("host.sockets: one for each NUMA node that has GPUs");
    return sockets;
  }

  // Those that carry the training: on a PCIe switch with a GPU where some are, of the highest rate.
  std::vector<const NodeNic*> used_nics() const {
    const auto near = [](const NodeNic& nic) { return nic.pcie_switch >= 0; };
    const bool some_near = std::ranges::any_of(node_.nics, near);
    double best = 0;
    for (const NodeNic& nic : node_.nics) {
      if (!some_near || near(nic)) best = std::max(best, nic.gbit_per_s.value_or(0));
    }
    std::vector<const NodeNic*> used;
    for (const NodeNic& nic : node_.nics) {
      if ((!some_near || near(nic)) && nic.gbit_per_s.value_or(0) == best) used.push_back(&nic);
    }
    return used;
  }

  Json nics() {
    const std::vector<const NodeNic*> used = used_nics();
    if (used.empty()) return {};
    if (used.size() < node_.nics.size()) {
      std::string left_out;
      for (const NodeNic& one : node_.nics) {
        if (std::ranges::find(used, &one) == used.end()) left_out += " " + one.name;
      }
      file_.notes.push_back(
          "NICs left out, slower than the others or not on a PCIe switch with a GPU as they are:" +
          left_out);
    }
    const NodeNic& nic = *used.front();
    const auto rate = nic.gbit_per_s;
    const double even = static_cast<double>(gpus_) / static_cast<double>(used.size());
    return Json{{"count", used.size()},
                {"gbit_per_s_per_direction_each", rate},
                {"gb_per_s_per_direction_each", rate ? Json(*rate / 8) : Json()},
                {"kind", or_null(names_.nic_kind(nic))},
                {"one_way_latency_us", nullptr},
                {"gpu_direct_rdma", nic.gpu_direct},
                {"gpus_per_nic", even}};
  }

  // The points of all logs; of equal ones the mean.
  Json calibration(const std::string& id) const {
    using Key = std::array<std::int64_t, 4>;
    std::map<Key, std::pair<double, int>> sums;
    for (const NcclTestsLog& log : machine_.logs) {
      for (const CollectivePoint& p : log.points) {
        auto& [sum, count] = sums[{static_cast<std::int64_t>(p.op), p.nodes, p.ranks, p.bytes}];
        sum += p.time_us;
        ++count;
      }
    }
    if (sums.empty()) return {};
    Json points = Json::array();
    for (const auto& [key, of] : sums) {
      points.push_back(Json{{"op", kOpWords[static_cast<std::size_t>(key[0])]},
                            {"ranks", key[2]},
                            {"nodes", key[1]},
                            {"bytes", key[3]},
                            {"time_us", of.first / of.second}});
    }
    Json json{{"schema", "calibration/1"}, {"id", id}};
    json["collectives"] = points;
    return json;
  }

  const MachineReport& machine_;
  const MachineNames& names_;
  NodeTopology node_;
  std::int32_t gpus_ = 0;
  std::string gpu_name_;
  std::optional<Cluster> shipped_;
  Json shipped_gpu_, shipped_scale_up_;
  std::vector<std::string> assumed_;
  ClusterFile file_;
};

}  // namespace

Result<ClusterFile> make_cluster_file(const MachineReport& machine, const std::string& id) {
  const Result<MachineNames> names = shipped_machine_names();
  if (!names) return names.error();
  return Maker(machine, names.value()).make(id);
}

}  // namespace rehearse::sim
