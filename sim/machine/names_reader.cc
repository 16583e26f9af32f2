// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"
#include "sim/machine/names.h"

namespace rehearse::sim {
namespace {

bool same_letters(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

class NamesReader {
 public:
  explicit NamesReader(const std::string& path) : report_(path) {}

  Result<MachineNames> read(const JsonValue& root) {
    MachineNames names;
    for (const JsonValue& row : list(root, "gpus")) {
      names.gpus.push_back({.cluster = text(row, "cluster"),
                            .names = texts(row, "names"),
                            .pci_devices = texts(row, "pci_devices")});
    }
    for (const JsonValue& row : list(root, "nics")) {
      names.nics.push_back({.pci_vendor = text(row, "pci_vendor"),
                            .pci_device = text(row, "pci_device"),
                            .infiniband = text(row, "infiniband"),
                            .ethernet = text(row, "ethernet")});
    }
    for (const JsonValue& row : list(root, "pcie")) {
      names.pcie.push_back({.gt_per_s = number(row, "gt_per_s"),
                            .generation = static_cast<std::int32_t>(number(row, "generation")),
                            .gb_per_s_per_lane = number(row, "gb_per_s_per_lane")});
    }
    if (!report_.ok()) return report_.error();
    return names;
  }

 private:
  const std::vector<JsonValue>& list(const JsonValue& of, std::string_view key) {
    static const std::vector<JsonValue> kNothing;
    const JsonValue* found = of.given(key);
    if (found != nullptr && found->is(JsonKind::Array)) return found->items;
    report_.fail(of.line, std::string(key), "must be a list");
    return kNothing;
  }
  std::string text(const JsonValue& of, std::string_view key) {
    const JsonValue* found = of.given(key);
    if (found != nullptr && found->is(JsonKind::String)) return found->text;
    report_.fail(of.line, std::string(key), "must be a text");
    return {};
  }
  std::vector<std::string> texts(const JsonValue& of, std::string_view key) {
    std::vector<std::string> all;
    for (const JsonValue& item : list(of, key)) all.push_back(item.text);
    return all;
  }
  double number(const JsonValue& of, std::string_view key) {
    const JsonValue* found = of.given(key);
    if (found != nullptr && found->is_number() && found->number > 0 && found->number < 1e6) {
      return found->number;
    }
    report_.fail(of.line, std::string(key), "must be a number above 0");
    return 1;
  }

  JsonReport report_;
};

}  // namespace

const GpuNames* MachineNames::gpu(std::string_view name, std::string_view pci_device) const {
  constexpr std::string_view kCut = "...";
  const bool cut = name.ends_with(kCut);
  const std::string_view begin = name.substr(0, name.size() - (cut ? kCut.size() : 0));
  const auto called = [&](const GpuNames& row) {
    return std::ranges::any_of(row.names, [&](const std::string& known) {
      return same_letters(cut ? std::string_view(known).substr(0, begin.size()) : known, begin);
    });
  };
  if (!name.empty()) {
    const auto found = std::ranges::find_if(gpus, called);
    const bool one = !cut || std::ranges::count_if(gpus, called) == 1;
    return found == gpus.end() || !one ? nullptr : &*found;
  }
  const auto is = [&](const GpuNames& row) {
    return std::ranges::find(row.pci_devices, pci_device) != row.pci_devices.end();
  };
  const auto found = std::ranges::find_if(gpus, is);
  return found == gpus.end() ? nullptr : &*found;
}

std::string MachineNames::nic_kind(const NodeNic& nic) const {
  if (!nic.infiniband) return {};
  const auto is = [&](const NicNames& row) {
    return row.pci_vendor == nic.pci_vendor && row.pci_device == nic.pci_device;
  };
  const auto found = std::ranges::find_if(nics, is);
  if (found == nics.end()) return {};
  return *nic.infiniband ? found->infiniband : found->ethernet;
}

const PcieGeneration* MachineNames::generation(double gt_per_s) const {
  const auto is = [&](const PcieGeneration& row) {
    return std::abs(row.gt_per_s - gt_per_s) < 0.1 * row.gt_per_s;
  };
  const auto found = std::ranges::find_if(pcie, is);
  return found == pcie.end() ? nullptr : &*found;
}

Result<MachineNames> shipped_machine_names() {
  const std::string path = shipped_directory() + "/machine/names.json";
  const Result<JsonValue> root = read_json(path);
  if (!root) return root.error();
  return NamesReader(path).read(root.value());
}

}  // namespace rehearse::sim
