// SPDX-License-Identifier: Apache-2.0
#include "viz/page/pack.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <vector>

#include "schedules/trace/trace_sections.h"

namespace rehearse::viz {
namespace {

using namespace trace_file;

constexpr std::uint32_t kLargestElement = 4096;  // [B] more is no column of ours

// One word of a section's elements.
struct Words {
  std::size_t offset = 0;  // of the first, in the file
  std::size_t stride = 0;  // [B] between two
  std::size_t rows = 0;
  std::size_t width = 0;        // [B] 8, 4 or 1
  const Words* base = nullptr;  // differences are to these words; nullptr: to the row before
};

std::size_t width_of(std::size_t element) {
  return element % 8 == 0 ? 8 : element % 4 == 0 ? 4 : 1;
}

// All words of all sections, in file order. REQUIRES: the table lies in the file.
std::vector<Words> words_of(std::span<const Section> table) {
  std::vector<Words> all;
  for (const Section& section : table) {
    const std::size_t element = section.element_bytes, width = width_of(element);
    for (std::size_t at = 0; at < element; at += width) {
      all.push_back({.offset = static_cast<std::size_t>(section.offset) + at,
                     .stride = element,
                     .rows = static_cast<std::size_t>(section.count),
                     .width = width});
    }
  }
  std::size_t first = 0;
  const Words* start = nullptr;
  for (const Section& section : table) {
    if (section.id == SectionId::Start) start = &all[first];
    if (section.id == SectionId::End && start != nullptr && start->rows == section.count &&
        start->width == all[first].width) {
      all[first].base = start;
    }
    first += section.element_bytes / width_of(section.element_bytes);
  }
  return all;
}

std::uint64_t load(const std::byte* from, std::size_t width) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, width);
  return word;
}

const std::byte* before(const std::byte* file, const Words& words, std::size_t row) {
  if (words.base != nullptr) return file + words.base->offset + row * words.base->stride;
  return row == 0 ? nullptr : file + words.offset + (row - 1) * words.stride;
}

std::vector<Section> table_of(const std::byte* header_and_table) {
  Header header;
  std::memcpy(&header, header_and_table, sizeof header);
  std::vector<Section> table(header.num_sections);
  std::memcpy(table.data(), header_and_table + sizeof header, table.size() * sizeof(Section));
  return table;
}

}  // namespace

std::string pack_trace(std::span<const std::byte> file) {
  const std::vector<Section> table = table_of(file.data());
  const std::uint64_t size = file.size();
  std::string packed(reinterpret_cast<const char*>(&size), sizeof size);
  packed.append(reinterpret_cast<const char*>(file.data()),
                sizeof(Header) + table.size() * sizeof(Section));
  for (const Words& words : words_of(table)) {
    const std::size_t begin = packed.size();
    packed.resize(begin + words.rows * words.width);
    for (std::size_t row = 0; row < words.rows; ++row) {
      const std::byte* to = before(file.data(), words, row);
      std::uint64_t word = load(file.data() + words.offset + row * words.stride, words.width);
      word -= to == nullptr ? 0 : load(to, words.width);
      for (std::size_t byte = 0; byte < words.width; ++byte) {
        packed[begin + byte * words.rows + row] = static_cast<char>(word >> (8 * byte));
      }
    }
  }
  return packed;
}

std::size_t unpacked_bytes(std::span<const std::byte> packed) {
  if (packed.size() < sizeof(std::uint64_t) + sizeof(Header)) return 0;
  return static_cast<std::size_t>(load(packed.data(), sizeof(std::uint64_t)));
}

Result<> unpack_trace(std::span<const std::byte> packed, std::span<std::byte> file) {
  const Error cut{"the packed trace is cut short"};
  if (file.size() != unpacked_bytes(packed) || file.size() < sizeof(Header)) return cut;
  packed = packed.subspan(sizeof(std::uint64_t));
  Header header;
  std::memcpy(&header, packed.data(), sizeof header);
  if (header.num_sections > (packed.size() - sizeof header) / sizeof(Section)) return cut;
  const std::size_t head = sizeof(Header) + header.num_sections * sizeof(Section);
  const std::vector<Section> table = table_of(packed.data());
  if (head > file.size()) return cut;
  for (const Section& section : table) {
    if (section.element_bytes == 0 || section.element_bytes > kLargestElement ||
        section.offset > file.size() ||
        section.count > (file.size() - section.offset) / section.element_bytes) {
      return cut;
    }
  }
  std::memset(file.data(), 0, file.size());
  std::memcpy(file.data(), packed.data(), head);
  packed = packed.subspan(head);
  for (const Words& words : words_of(table)) {
    if (packed.size() < words.rows * words.width) return cut;
    for (std::size_t row = 0; row < words.rows; ++row) {
      std::uint64_t word = 0;
      for (std::size_t byte = 0; byte < words.width; ++byte) {
        word |= std::to_integer<std::uint64_t>(packed[byte * words.rows + row]) << (8 * byte);
      }
      const std::byte* to = before(file.data(), words, row);
      word += to == nullptr ? 0 : load(to, words.width);
      std::memcpy(file.data() + words.offset + row * words.stride, &word, words.width);
    }
    packed = packed.subspan(words.rows * words.width);
  }
  return {};
}

std::string pack_waterfall(const Waterfall& waterfall) {
  std::string lines;
  const auto line = [&](std::string text) {
    std::ranges::replace(text, '\n', ' ');
    lines += text + "\n";
  };
  line(waterfall.title);
  line(waterfall.from);
  line(waterfall.to);
  line(std::to_string(waterfall.begin));
  for (const WaterfallStep& step : waterfall.steps)
    line(std::to_string(step.difference) + " " + step.label);
  return lines;
}

std::optional<Waterfall> unpack_waterfall(std::string_view lines) {
  const auto next = [&lines]() -> std::optional<std::string_view> {
    const std::size_t end = lines.find('\n');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end + 1);
    return line;
  };
  // A number, and what stands behind it.
  const auto number = [](std::string_view& text, std::int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return error == std::errc{};
  };
  const auto title = next(), from = next(), to = next();
  auto begin = next();
  Waterfall waterfall;
  if (!title || !from || !to || !begin || !number(*begin, waterfall.begin)) return std::nullopt;
  waterfall.title = *title;
  waterfall.from = *from;
  waterfall.to = *to;
  while (auto line = next()) {
    WaterfallStep step;
    if (!number(*line, step.difference) || line->empty()) return std::nullopt;
    step.label = line->substr(1);
    waterfall.steps.push_back(std::move(step));
  }
  return waterfall;
}

}  // namespace rehearse::viz
