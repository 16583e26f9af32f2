// SPDX-License-Identifier: Apache-2.0
// The trace file: a header, a table of sections, then each column as it lies in memory.
//
//   header (64 B) | Section[num_sections] | sections, each at a multiple of 64 B
//
// A reader maps the file and points its columns at it. Before that, every offset, index and order
// is proved, so nothing behind the reader needs to check again. Unknown sections are passed over.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>

#include "schedules/base/whole_file.h"
#include "schedules/trace/trace.h"

namespace rehearse {

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(const_cast<void*>(data_), size_);
}

namespace {

static_assert(std::endian::native == std::endian::little, "columns are stored as they lie");

constexpr std::array<char, 8> kMagic{'r', 'e', 'h', 't', 'r', 'a', 'c', 'e'};
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kAlignment = 64;

struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kVersion;
  std::uint32_t num_sections = 0;
  std::uint64_t file_bytes = 0;
  std::uint64_t num_ops = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int32_t microbatches = 0, slots = 0;
  TraceLabel label{};
  std::uint8_t reserved[7] = {};
};
static_assert(sizeof(Header) == 64);

// On disk: do not change or reorder; a new section is a new number.
enum class SectionId : std::uint32_t {
  Strings = 1,
  Rows,
  RowBegin,
  Lanes,
  Classes,
  Start,
  End,
  OpClass,
  Microbatch,
  Partner,
  CostLevel,
  ExpectedStart,
  Communicating,
  IdleBegin,
  Idle,
  MemoryBegin,
  MemoryTime,
  MemoryBytes,
  Links,
  LinkBegin,
  LinkSamples,
  WaitBegin,
  Waits,
  OperandBegin,
  Operands,
  Values,
  RunBegin,
  Runs,
  Bodies,
  Nodes,
  Resident,
  RowClass,
  ExpertShape,
  ExpertLayers,
  ExpertSteps,
  ExpertRows,
};

struct Section {
  SectionId id{};
  std::uint32_t element_bytes = 0;
  std::uint64_t offset = 0, count = 0;
  std::uint64_t reserved = 0;
};
static_assert(sizeof(Section) == 32);

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

// Calls visit(id, column) for every column of the trace, in file order: reader and writer agree.
template <class SomeTrace, class Visit>
void for_each_column(SomeTrace& trace, Visit visit) {
  visit(SectionId::Rows, trace.rows);
  visit(SectionId::RowBegin, trace.row_begin);
  visit(SectionId::Lanes, trace.lanes);
  visit(SectionId::Classes, trace.classes);
  visit(SectionId::Start, trace.start_ns);
  visit(SectionId::End, trace.end_ns);
  visit(SectionId::OpClass, trace.op_class);
  visit(SectionId::Microbatch, trace.microbatch);
  visit(SectionId::Partner, trace.partner);
  visit(SectionId::CostLevel, trace.cost_level);
  visit(SectionId::ExpectedStart, trace.expected_start_ns);
  visit(SectionId::Communicating, trace.communicating_ns);
  visit(SectionId::IdleBegin, trace.idle_begin);
  visit(SectionId::Idle, trace.idle);
  visit(SectionId::MemoryBegin, trace.memory_begin);
  visit(SectionId::MemoryTime, trace.memory_time);
  visit(SectionId::MemoryBytes, trace.memory_bytes);
  visit(SectionId::Links, trace.links);
  visit(SectionId::LinkBegin, trace.link_begin);
  visit(SectionId::LinkSamples, trace.link_samples);
  visit(SectionId::WaitBegin, trace.wait_begin);
  visit(SectionId::Waits, trace.waits);
  visit(SectionId::OperandBegin, trace.operand_begin);
  visit(SectionId::Operands, trace.operands);
  visit(SectionId::Values, trace.values);
  visit(SectionId::RunBegin, trace.run_begin);
  visit(SectionId::Runs, trace.runs);
  visit(SectionId::Bodies, trace.bodies);
  visit(SectionId::Nodes, trace.nodes);
  visit(SectionId::Resident, trace.resident_bytes);
  visit(SectionId::RowClass, trace.row_class);
  visit(SectionId::ExpertShape, trace.expert_shape);
  visit(SectionId::ExpertLayers, trace.expert_layers);
  visit(SectionId::ExpertSteps, trace.expert_steps);
  visit(SectionId::ExpertRows, trace.expert_rows);
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
  if (Fault fault = read_texts(trace, file.subspan(texts->offset, texts->count)); !fault.empty()) {
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
    column = Column<T>::mapped(
        {reinterpret_cast<const T*>(file.data() + section->offset), section->count});
  });
  return fault;
}

Result<Mapping> map_file(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return Error{path + ": cannot read: " + std::strerror(errno)};
  struct stat info {};
  if (fstat(file, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(file);
    return Error{path + ": not a file"};
  }
  const auto size = static_cast<std::size_t>(info.st_size);
  if (size < sizeof(Header)) {
    close(file);
    return Error{path + ": not a trace file"};
  }
  const void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
  close(file);
  if (data == MAP_FAILED) return Error{path + ": cannot map: " + std::strerror(errno)};
  return Mapping(data, size);
}

}  // namespace

Result<> write_trace(const Trace& trace, const std::string& path) {
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

  WholeFile file(path);
  file.write(&header, sizeof header);
  file.write(table.data(), table.size() * sizeof(Section));
  std::size_t written = sizeof header + table.size() * sizeof(Section), index = 0;
  const auto put = [&](const void* data) {
    static constexpr std::array<char, kAlignment> kZeros{};
    const Section& section = table[index++];
    const std::size_t bytes = section.count * section.element_bytes;
    file.write(kZeros.data(), section.offset - written);
    file.write(data, bytes);
    written = section.offset + bytes;
  };
  put(texts.data());
  for_each_column(trace, [&]<class T>(SectionId, const Column<T>& column) {
    if (!column.empty()) put(column.data());
  });
  return file.finish();
}

Result<Trace> read_trace(const std::string& path) {
  Result<Mapping> mapped = map_file(path);
  if (!mapped) return mapped.error();
  Trace trace;
  trace.mapping = std::move(mapped).value();
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

bool is_trace_file(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;  // a pipe would be waited for
  std::array<char, kMagic.size()> magic{};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const bool whole = std::fread(magic.data(), 1, magic.size(), file) == magic.size();
  std::fclose(file);
  return whole && magic == kMagic;
}

}  // namespace rehearse
