// SPDX-License-Identifier: Apache-2.0
// A reader points its columns at the bytes. Before that, every offset, index and order is proved,
// so nothing behind the reader needs to check again. Unknown sections are passed over.
#include "schedules/trace/trace_bytes.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "schedules/trace/trace_sections.h"

namespace rehearse {
namespace {

using namespace trace_file;

// Texts in one block: hash, schedule, title, caption, number of memory parts, the parts, strings;
// each as its length (4 B) and its bytes.
void put_text(std::string& block, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  block.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
}

void put_count(std::string& block, std::size_t count) {
  const auto number = static_cast<std::uint32_t>(count);
  block.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::string text_block(const Trace& trace) {
  std::string block;
  put_text(block, trace.schedule_hash);
  put_text(block, trace.schedule_name);
  put_text(block, trace.title);
  put_text(block, trace.caption);
  put_count(block, trace.memory_parts.size());
  for (const std::string& part : trace.memory_parts) put_text(block, part);
  put_count(block, trace.strings.size());
  for (const std::string& text : trace.strings) put_text(block, text);
  return block;
}

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

using Fault = std::string;  // the first thing wrong, or nothing

// Texts out of their block; false where it is cut short.
class TextReader {
 public:
  explicit TextReader(std::span<const std::byte> block) : block_(block) {}
  bool count(std::uint32_t& number) {
    if (block_.size() < sizeof number) return false;
    std::memcpy(&number, block_.data(), sizeof number);
    block_ = block_.subspan(sizeof number);
    return true;
  }
  bool text(std::string& into) {
    std::uint32_t size = 0;
    if (!count(size) || size > block_.size()) return false;
    into.assign(reinterpret_cast<const char*>(block_.data()), size);
    block_ = block_.subspan(size);
    return true;
  }
  bool texts(std::vector<std::string>& into) {
    std::uint32_t number = 0;
    if (!count(number) || number > block_.size() / sizeof number) return false;
    into.resize(number);
    return std::ranges::all_of(into, [this](std::string& one) { return text(one); });
  }

 private:
  std::span<const std::byte> block_;
};

Fault read_texts(Trace& trace, std::span<const std::byte> block) {
  TextReader reader(block);
  const bool whole = reader.text(trace.schedule_hash) && reader.text(trace.schedule_name) &&
                     reader.text(trace.title) && reader.text(trace.caption) &&
                     reader.texts(trace.memory_parts) && reader.texts(trace.strings);
  return whole ? Fault{} : Fault{"texts are cut short"};
}

Fault read_columns(Trace& trace, std::span<const std::byte> file, std::span<const Section> table) {
  std::array<const Section*, 64> by_id{};
  for (const Section& section : table) {
    const auto id = static_cast<std::size_t>(section.id);
    if (id >= by_id.size()) continue;  // of a later version
    if (by_id[id] != nullptr) return "section " + std::to_string(id) + " is there twice";
    if (section.offset % kAlignment != 0 || section.offset > file.size() ||
        section.element_bytes == 0 ||
        section.count > (file.size() - section.offset) / section.element_bytes) {
      return "section " + std::to_string(id) + " lies outside the file";
    }
    by_id[id] = &section;
  }
  const Section* texts = by_id[static_cast<std::size_t>(SectionId::Strings)];
  if (texts == nullptr || texts->element_bytes != 1) return "no texts";
  if (Fault fault = read_texts(trace, file.subspan(static_cast<std::size_t>(texts->offset),
                                                   static_cast<std::size_t>(texts->count)));
      !fault.empty()) {
    return fault;
  }
  Fault fault;
  for_each_column(trace, [&]<class T>(SectionId id, Column<T>& column) {
    const Section* section = by_id[static_cast<std::size_t>(id)];
    if (section == nullptr || section->count == 0) return;
    if (section->element_bytes != sizeof(T)) {
      fault = "section " + std::to_string(static_cast<int>(id)) + " has entries of another size";
      return;
    }
    column = Column<T>::mapped({reinterpret_cast<const T*>(file.data() + section->offset),
                                static_cast<std::size_t>(section->count)});
  });
  return fault;
}

}  // namespace

void put_trace(const Trace& trace, const std::function<void(const void*, std::size_t)>& put) {
  const std::string texts = text_block(trace);
  std::vector<Section> table{{.id = SectionId::Strings, .element_bytes = 1, .count = texts.size()}};
  for_each_column(trace, [&]<class T>(SectionId id, const Column<T>& column) {
    if (column.empty()) return;
    table.push_back({.id = id, .element_bytes = sizeof(T), .count = column.size()});
  });
  std::size_t end = sizeof(Header) + table.size() * sizeof(Section);
  for (Section& section : table) {
    section.offset = aligned(end);
    end = section.offset + section.count * section.element_bytes;
  }
  const Header header{.num_sections = static_cast<std::uint32_t>(table.size()),
                      .file_bytes = end,
                      .num_ops = trace.start_ns.size(),
                      .begin_ns = trace.begin.value,
                      .end_ns = trace.end.value,
                      .microbatches = trace.microbatches,
                      .slots = trace.slots,
                      .label = trace.label};

  put(&header, sizeof header);
  put(table.data(), table.size() * sizeof(Section));
  std::size_t written = sizeof header + table.size() * sizeof(Section), index = 0;
  const auto next = [&](const void* data) {
    static constexpr std::array<char, kAlignment> kZeros{};
    const Section& section = table[index++];
    const std::size_t bytes = section.count * section.element_bytes;
    put(kZeros.data(), section.offset - written);
    put(data, bytes);
    written = section.offset + bytes;
  };
  next(texts.data());
  for_each_column(trace, [&]<class T>(SectionId, const Column<T>& column) {
    if (!column.empty()) next(column.data());
  });
}

std::string trace_bytes(const Trace& trace) {
  std::string bytes;
  put_trace(trace, [&](const void* data, std::size_t size) {
    bytes.append(static_cast<const char*>(data), size);
  });
  return bytes;
}

Result<Trace> trace_of(MappedTrace bytes, const std::string& path) {
  if (bytes.bytes().size() < sizeof(Header)) return Error{path + ": not a trace file"};
  Trace trace;
  trace.mapping = std::move(bytes);
  const std::span<const std::byte> file = trace.mapping.bytes();
  Header header;
  std::memcpy(&header, file.data(), sizeof header);
  if (header.magic != kMagic) return Error{path + ": not a trace file"};
  if (header.version != kVersion) {
    return Error{path + ": trace of version " + std::to_string(header.version) +
                 ", this program reads version " + std::to_string(kVersion)};
  }
  if (header.file_bytes != file.size()) return Error{path + ": the file is cut short or too long"};
  if (header.num_sections > (file.size() - sizeof header) / sizeof(Section)) {
    return Error{path + ": the table of sections lies outside the file"};
  }
  if (header.label != TraceLabel::Predicted && header.label != TraceLabel::Measured) {
    return Error{path + ": neither predicted nor measured"};
  }
  std::vector<Section> table(header.num_sections);
  std::memcpy(table.data(), file.data() + sizeof header, table.size() * sizeof(Section));
  trace.label = header.label;
  trace.begin = {header.begin_ns};
  trace.end = {header.end_ns};
  trace.microbatches = header.microbatches;
  trace.slots = header.slots;
  if (Fault fault = read_columns(trace, file, table); !fault.empty()) {
    return Error{path + ": " + fault};
  }
  if (header.num_ops != trace.start_ns.size()) return Error{path + ": wrong number of ops"};
  if (Fault fault = trace_fault(trace); !fault.empty()) return Error{path + ": " + fault};
  return trace;
}

}  // namespace rehearse
