// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/nccl_topology.h"

#include <algorithm>
#include <charconv>

#include "schedules/base/json_reader.h"
#include "sim/machine/xml.h"

namespace rehearse::sim {
namespace {

constexpr std::int32_t kMostOfXml = 1024;
constexpr std::int32_t kMostLinks = 1024;

// The leading number of "32.0 GT/s PCIe", "400000"; none: there is no number.
std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end == text.data() || !(value >= 0)) return {};
  return value;
}

// Classes of PCI, as its specification numbers them: "0x0302.." is a 3D controller.
bool is_bridge(std::string_view pci_class) {
  return pci_class.starts_with("0x0604");
}
bool is_gpu(std::string_view pci_class) {
  return pci_class.starts_with("0x03") || pci_class.starts_with("0x12");
}
bool is_infiniband(std::string_view pci_class) {
  return pci_class.starts_with("0x0207");
}
bool is_nic(std::string_view pci_class) {
  return pci_class.starts_with("0x0200") || is_infiniband(pci_class);
}
bool is_switch(std::string_view pci_class) {
  return pci_class.starts_with("0x0680");
}

const XmlElement* child(const XmlElement& of, std::string_view name) {
  const auto found = std::ranges::find(of.children, name, &XmlElement::name);
  return found == of.children.end() ? nullptr : &*found;
}

class TopologyReader {
 public:
  explicit TopologyReader(const std::string& path) : path_(path) {}

  Result<NodeTopology> read(const XmlElement& root) {
    if (root.name != "system") {
      return json_error(path_, root.line, "",
                        "begins with <" + root.name + ">: NCCL's topology begins with <system>");
    }
    for (const XmlElement& cpu : root.children) {
      if (cpu.name != "cpu") continue;
      const std::string_view vendor = cpu.attribute("vendor");
      if (out_.cpu.empty() && !vendor.empty()) {
        out_.cpu = std::string(vendor) + ", family " + std::string(cpu.attribute("familyid")) +
                   ", model " + std::string(cpu.attribute("modelid"));
      }
      numa_ = number(cpu.attribute("numaid"));
      for (const XmlElement& device : cpu.children) device_of(device, -1);
    }
    if (gpus_.empty()) return Error{path_ + ": no GPU stands in it"};
    if (gpus_.size() > kMostOfXml || out_.nics.size() > kMostOfXml) {
      return Error{path_ + ": more devices than a node has"};
    }
    links();
    if (error_) return *error_;
    keep_switches_of_gpus();
    return std::move(out_);
  }

 private:
  struct FoundGpu {
    std::string bus;
    const XmlElement* gpu = nullptr;  // nullptr: a leaf of the GPU's class
  };

  // `under`: the outermost bridge of the CPU that it stands behind; -1: none.
  void device_of(const XmlElement& device, std::int32_t under) {
    if (device.name == "nic") return nets(device, device, under);  // virtual, or of the CPU itself
    if (device.name != "pci") return;
    const std::string_view pci_class = device.attribute("class");
    const XmlElement *gpu = child(device, "gpu"), *nic = child(device, "nic");
    if (is_bridge(pci_class) && under < 0) under = bridges_++;
    if (gpu != nullptr || (is_gpu(pci_class) && device.children.empty())) {
      found_gpu(device, gpu, under);
    } else if (nic == nullptr && is_nic(pci_class) && device.children.empty()) {
      out_.nics.push_back(nic_of(device, under));
    }
    if (nic != nullptr) nets(*nic, device, under);
    for (const XmlElement& inner : device.children) {
      if (inner.name == "pci") device_of(inner, under);
    }
  }

  void found_gpu(const XmlElement& device, const XmlElement* gpu, std::int32_t under) {
    gpus_.push_back({.bus = std::string(device.attribute("busid")), .gpu = gpu});
    out_.pcie_switch.push_back(under);
    const std::string kind(device.attribute("device"));
    if (out_.gpu_pci_device.empty()) {
      out_.gpu_pci_device = kind;
      out_.gpu_pci_vendor = device.attribute("vendor");
    } else if (!kind.empty() && kind != out_.gpu_pci_device) {
      error_ = json_error(path_, device.line, "",
                          "a GPU of PCI device " + kind + " beside " + out_.gpu_pci_device +
                              ": a cluster has one kind");
    }
    const auto speed = number(device.attribute("link_speed"));
    const auto width = number(device.attribute("link_width"));
    if (speed && width && *width >= 1 && *width <= 64) {
      out_.gpu_pcie_gt_per_s = speed;
      out_.gpu_pcie_lanes = static_cast<std::int32_t>(*width);
    }
    if (gpu != nullptr && gpu->attribute("gcn").empty()) {
      const auto sm = number(gpu->attribute("sm"));
      if (sm && *sm >= 10 && *sm < 10000) {
        out_.compute_capability = static_cast<std::int32_t>(*sm);
      }
    }
    if (!numa_ || *numa_ > 65536) return;
    const auto numa = static_cast<std::int32_t>(*numa_);
    if (std::ranges::find(out_.numa, numa) == out_.numa.end()) out_.numa.push_back(numa);
  }

  static NodeNic nic_of(const XmlElement& device, std::int32_t under) {
    NodeNic nic{.name = std::string(device.attribute("busid")),
                .pci_vendor = std::string(device.attribute("vendor")),
                .pci_device = std::string(device.attribute("device")),
                .pcie_switch = under};
    if (is_nic(device.attribute("class"))) {
      nic.infiniband = is_infiniband(device.attribute("class"));
    }
    return nic;
  }

  void nets(const XmlElement& nic, const XmlElement& device, std::int32_t under) {
    for (const XmlElement& net : nic.children) {
      if (net.name != "net") continue;
      NodeNic one = nic_of(device, under);
      one.name = net.attribute("name");
      if (const auto mbit = number(net.attribute("speed")); mbit && *mbit > 0) {
        one.gbit_per_s = *mbit / 1000;
      }
      if (const auto gdr = number(net.attribute("gdr"))) one.gpu_direct = *gdr > 0;
      out_.nics.push_back(std::move(one));
    }
  }

  void links() {
    const auto n = gpus_.size();
    out_.gpus = static_cast<std::int32_t>(n);
    std::vector<std::int32_t> between(n * n, 0);
    bool said = false;
    std::vector<std::int32_t> to_switch(n, 0);
    for (std::size_t a = 0; a < n; ++a) {
      if (gpus_[a].gpu == nullptr) continue;
      said = true;
      for (const XmlElement& link : gpus_[a].gpu->children) {
        if (link.name != "nvlink" && link.name != "xgmi") continue;
        const auto count = number(link.attribute("count"));
        if (!count || *count < 1 || *count > kMostLinks) {
          error_ = json_error(path_, link.line, "", "<" + link.name + "> has no count of links");
          return;
        }
        const auto links = static_cast<std::int32_t>(*count);
        if (is_switch(link.attribute("tclass"))) {
          to_switch[a] += links;
          continue;
        }
        const auto target = std::ranges::find(gpus_, link.attribute("target"), &FoundGpu::bus);
        if (target == gpus_.end()) continue;  // a GPU that the job does not use
        const auto b = static_cast<std::size_t>(target - gpus_.begin());
        if (b != a) between[a * n + b] += links;
      }
    }
    if (!said) return;
    out_.to_switch = std::move(to_switch);
    out_.links = std::move(between);
  }

  // Bridges without a GPU behind them are of no interest; the others are counted from 0.
  void keep_switches_of_gpus() {
    std::vector<std::int32_t> kept;
    for (std::int32_t& under : out_.pcie_switch) {
      if (under < 0) continue;
      auto found = std::ranges::find(kept, under);
      if (found == kept.end()) found = kept.insert(kept.end(), under);
      under = static_cast<std::int32_t>(found - kept.begin());
    }
    for (NodeNic& nic : out_.nics) {
      const auto found = std::ranges::find(kept, nic.pcie_switch);
      nic.pcie_switch = found == kept.end() ? -1 : static_cast<std::int32_t>(found - kept.begin());
    }
    out_.pcie_switches = static_cast<std::int32_t>(kept.size());
  }

  const std::string& path_;
  std::vector<FoundGpu> gpus_;
  std::int32_t bridges_ = 0;
  std::optional<double> numa_;
  std::optional<Error> error_;
  NodeTopology out_;
};

}  // namespace

Result<NodeTopology> read_nccl_topology(std::string_view text, const std::string& path) {
  const Result<XmlElement> root = parse_xml(text, path);
  if (!root) return root.error();
  return TopologyReader(path).read(root.value());
}

}  // namespace rehearse::sim
