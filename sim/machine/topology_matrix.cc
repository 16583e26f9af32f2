// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/topology_matrix.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

constexpr std::int32_t kMostDevices = 1024;  // GPUs and NICs of a node: a matrix of more is none

// Without the sequences that switch underlines on and off.
std::string without_colours(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const std::size_t begin = line[i] == '\x1b' ? i + 1 : i;
    if (begin < line.size() && line[begin] == '[') {
      std::size_t end = begin + 1;
      while (end < line.size() && (line[end] == ';' || (line[end] >= '0' && line[end] <= '9'))) {
        ++end;
      }
      if (end < line.size() && line[end] == 'm') {
        i = end;
        continue;
      }
    }
    if (line[i] != '\r') text += line[i];
  }
  return text;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t begin = line.find_first_not_of(" \t", at);
    if (begin == std::string_view::npos) break;
    at = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back(line.substr(begin, at - begin));
  }
  return words;
}

std::optional<std::int32_t> whole(std::string_view text) {
  std::int32_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || value < 0) return {};
  return value;
}

// The number of "GPU12"; none: it is another device.
std::optional<std::int32_t> gpu_number(std::string_view label) {
  return label.starts_with("GPU") ? whole(label.substr(3)) : std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// "GPU 0: NVIDIA H100 80GB HBM3 (UUID: ...)", "GPU 0,1: NAME",
// "|   0  NVIDIA H100 80GB HBM3          On  |   00000000:9D:00.0 Off |"; empty: neither.
std::string_view name_in(std::string_view line) {
  if (line.starts_with("GPU ")) {
    const std::size_t colon = line.find(':');
    const bool numbers = colon != std::string_view::npos && colon > 4 &&
                         line.substr(4, colon - 4).find_first_not_of("0123456789, ") ==
                             std::string_view::npos;
    if (!numbers) return {};
    return trimmed(line.substr(colon + 1, line.find(" (UUID") - colon - 1));
  }
  if (!line.starts_with('|')) return {};
  const std::string_view cell = trimmed(line.substr(1, line.find('|', 1) - 1));
  const std::size_t number = cell.find_first_not_of("0123456789");
  const std::size_t last = cell.find_last_of(' ');
  if (number == 0 || last == std::string_view::npos || number >= last) return {};
  if (cell.substr(last + 1) != "On" && cell.substr(last + 1) != "Off") return {};
  return trimmed(cell.substr(number, last - number));
}

enum class Way : std::uint8_t { Self, Links, Switch, Bridges };
struct Cell {
  Way way = Way::Bridges;
  std::int32_t links = 0;
};
std::optional<Cell> cell_of(std::string_view word) {
  if (word == "X") return Cell{.way = Way::Self};
  if (word == "PIX" || word == "PXB" || word == "PSB") return Cell{.way = Way::Switch};
  if (word == "PHB" || word == "NODE" || word == "SYS" || word == "SOC") return Cell{};
  if (!word.starts_with("NV")) return {};
  const auto links = whole(word.substr(2));
  if (!links || *links < 1 || *links > kMostDevices) return {};
  return Cell{.way = Way::Links, .links = *links};
}

struct Row {
  std::string label;
  std::int32_t line = 0;
  std::vector<Cell> cells;
  std::optional<std::int32_t> numa;
};

class Matrix {
 public:
  Matrix(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Result<NodeTopology> read() {
    std::int32_t line = 0;
    std::size_t at = 0;
    while (at < text_.size()) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      ++line;
      if (const Result<> read = one(without_colours(text_.substr(at, end - at)), line); !read) {
        return read.error();
      }
      at = end + 1;
    }
    if (columns_.empty() && out_.gpu_names.empty()) {
      return Error{path_ + ": neither the matrix of `nvidia-smi topo -m` nor a GPU's name"};
    }
    if (const Result<> whole = check(); !whole) return whole.error();
    fill();
    return std::move(out_);
  }

 private:
  Error wrong(std::int32_t line, const std::string& what) const {
    return json_error(path_, line, "", what);
  }

  Result<> one(const std::string& line, std::int32_t number) {
    if (const std::string_view name = name_in(trimmed(line)); !name.empty()) {
      if (std::ranges::find(out_.gpu_names, name) == out_.gpu_names.end()) {
        out_.gpu_names.emplace_back(name);
      }
      return {};
    }
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) return {};
    if (columns_.empty()) {
      header(words, number);
      return {};
    }
    if (words.front().ends_with(':')) {  // "NIC0: mlx5_0" of the legend
      const std::string label(words.front().substr(0, words.front().size() - 1));
      const auto of = std::ranges::find(columns_, label);
      if (of != columns_.end() && words.size() == 2) legend_.emplace_back(label, words[1]);
      return {};
    }
    if (std::ranges::find(columns_, words.front()) == columns_.end()) return {};
    return row(words, number);
  }

  void header(const std::vector<std::string_view>& words, std::int32_t line) {
    if (gpu_number(words.front()) != 0) return;
    // "GPU0 X" begins a row, not the header.
    if (words.size() > 1 && cell_of(words[1])) return;
    for (const std::string_view word : words) {
      if (word == "CPU" || word == "NUMA" || word == "GPU") break;
      columns_.emplace_back(word);
    }
    header_line_ = line;
  }

  Result<> row(const std::vector<std::string_view>& words, std::int32_t line) {
    Row row{.label = std::string(words.front()), .line = line};
    const auto same = [&](const Row& other) { return other.label == row.label; };
    if (std::ranges::any_of(rows_, same)) return wrong(line, row.label + " has two rows");
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i + 1 >= words.size()) {
        return wrong(line, row.label + " has " + std::to_string(words.size() - 1) + " of " +
                               std::to_string(columns_.size()) + " columns");
      }
      const auto cell = cell_of(words[i + 1]);
      if (!cell) {
        return wrong(line, json_excerpt(words[i + 1]) + " is no connection of nvidia-smi");
      }
      row.cells.push_back(*cell);
    }
    if (words.size() > columns_.size() + 2) row.numa = whole(words[columns_.size() + 2]);
    rows_.push_back(std::move(row));
    return {};
  }

  Result<> check() const {
    if (columns_.size() > kMostDevices) return wrong(header_line_, "more devices than a node has");
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i >= rows_.size() || rows_[i].label != columns_[i]) {
        if (!gpu_number(columns_[i])) continue;  // old drivers leave rows of NICs out
        return wrong(header_line_, columns_[i] + " has a column and no row");
      }
      for (std::size_t j = 0; j < i; ++j) {
        const Cell &a = rows_[i].cells[j], &b = rows_[j].cells[i];
        if (a.way == b.way && a.links == b.links) continue;
        return wrong(rows_[i].line, columns_[i] + " reaches " + columns_[j] +
                                        " in another way than it is reached");
      }
      if (rows_[i].cells[i].way != Way::Self) {
        return wrong(rows_[i].line, columns_[i] + " is not X to itself");
      }
    }
    return {};
  }

  void fill() {
    std::vector<std::size_t> gpus, nics;  // columns
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      (gpu_number(columns_[i]) ? gpus : nics).push_back(i);
    }
    const std::size_t n = gpus.size();
    out_.gpus = static_cast<std::int32_t>(n);
    out_.links.assign(n * n, 0);
    // Which devices stand behind one PCIe switch: the least column that each reaches by switches.
    std::vector<std::size_t> first(columns_.size());
    std::iota(first.begin(), first.end(), std::size_t{0});
    for (std::size_t i = 0; i < rows_.size() && i < columns_.size(); ++i) {
      for (std::size_t j = 0; j < columns_.size(); ++j) {
        if (rows_[i].cells[j].way != Way::Switch) continue;
        const std::size_t low = std::min(first[i], first[j]), high = std::max(first[i], first[j]);
        std::ranges::replace(first, high, low);
      }
    }
    std::vector<std::size_t> switches;  // by their first device; those with a GPU
    const auto switch_of = [&](std::size_t device) -> std::int32_t {
      const auto found = std::ranges::find(switches, first[device]);
      return found == switches.end() ? -1 : static_cast<std::int32_t>(found - switches.begin());
    };
    for (std::size_t a = 0; a < n; ++a) {
      const Row& row = rows_[gpus[a]];
      for (std::size_t b = 0; b < n; ++b) out_.links[a * n + b] = row.cells[gpus[b]].links;
      if (row.numa && std::ranges::find(out_.numa, *row.numa) == out_.numa.end()) {
        out_.numa.push_back(*row.numa);
      }
      if (std::ranges::count(first, first[gpus[a]]) > 1 && switch_of(gpus[a]) < 0) {
        switches.push_back(first[gpus[a]]);
      }
      out_.pcie_switch.push_back(switch_of(gpus[a]));
    }
    out_.pcie_switches = static_cast<std::int32_t>(switches.size());
    for (const std::size_t nic : nics) {
      NodeNic one{.name = columns_[nic], .pcie_switch = switch_of(nic)};
      for (const auto& [label, name] : legend_) {
        if (label == one.name) one.name = name;
      }
      out_.nics.push_back(std::move(one));
    }
  }

  std::string_view text_;
  const std::string& path_;
  std::vector<std::string> columns_;
  std::int32_t header_line_ = 0;
  std::vector<Row> rows_;
  std::vector<std::pair<std::string, std::string>> legend_;
  NodeTopology out_;
};

}  // namespace

Result<NodeTopology> read_topology_matrix(std::string_view text, const std::string& path) {
  return Matrix(text, path).read();
}

}  // namespace rehearse::sim
