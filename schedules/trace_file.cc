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
#include <cstdio>
#include <cstring>
#include <limits>

#include "schedules/trace.h"

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
}

constexpr std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A FILE that removes itself unless it was kept.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path)
      : path_(path + ".tmp" + std::to_string(getpid())), file_(std::fopen(path_.c_str(), "wb")) {}
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (file_ != nullptr) std::fclose(file_);
    if (!path_.empty()) std::remove(path_.c_str());
  }
  bool write(const void* data, std::size_t bytes) {
    return file_ != nullptr && (bytes == 0 || std::fwrite(data, 1, bytes, file_) == bytes);
  }
  bool pad_to(std::size_t from, std::size_t to) {
    static constexpr std::array<char, kAlignment> kZeros{};
    return write(kZeros.data(), to - from);
  }
  bool keep_as(const std::string& path) {
    if (file_ == nullptr || std::fclose(std::exchange(file_, nullptr)) != 0) return false;
    if (std::rename(path_.c_str(), path.c_str()) != 0) return false;
    path_.clear();
    return true;
  }

 private:
  std::string path_;
  std::FILE* file_;
};

// What the columns must fulfil. Each check returns the first fault as a text, or nothing.
using Fault = std::string;

Fault at(const char* what, std::size_t index, const char* wrong) {
  return std::string(what) + ' ' + std::to_string(index) + ": " + wrong;
}

// offsets: begins at 0, never falls, ends at `total`.
template <class Int>
Fault check_offsets(const char* what, std::span<const Int> offsets, std::size_t count,
                    std::size_t total) {
  if (offsets.size() != count + 1) return std::string(what) + ": wrong number of offsets";
  if (offsets[0] != 0) return std::string(what) + ": offsets do not begin at 0";
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    if (offsets[i] < offsets[i - 1]) return at(what, i, "offset falls");
  }
  if (static_cast<std::uint64_t>(offsets[count]) != total) {
    return std::string(what) + ": offsets do not end at the column's size";
  }
  return {};
}

// Every number within [low, high): branch-free, so that ten million take milliseconds.
bool within(std::span<const std::int32_t> numbers, std::int32_t low, std::int64_t high) {
  std::int32_t least = std::numeric_limits<std::int32_t>::max();
  std::int32_t most = std::numeric_limits<std::int32_t>::min();
  for (const std::int32_t number : numbers) {
    least = std::min(least, number);
    most = std::max(most, number);
  }
  return numbers.empty() || (least >= low && most < high);
}

bool is_string(const Trace& trace, TraceString id) {
  return id >= -1 && id < static_cast<std::int64_t>(trace.strings.size());
}

Fault check_tables(const Trace& trace) {
  const auto rows = trace.rows.size();
  if (rows > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() / 256)) {
    return "too many rows";
  }
  if (trace.slots < 0 || trace.slots > 32767) return "slots out of range";
  if (trace.lanes.size() != rows * static_cast<std::size_t>(trace.slots)) {
    return "lanes: not slots for every row";
  }
  for (std::size_t i = 0; i < rows; ++i) {
    const TraceRow& row = trace.rows[i];
    if (!is_string(trace, row.name)) return at("row", i, "no such name");
    if (row.multiplicity < 1) return at("row", i, "multiplicity below 1");
    if (row.capacity_bytes < 0) return at("row", i, "negative capacity");
  }
  for (std::size_t i = 0; i < trace.lanes.size(); ++i) {
    const TraceLane& lane = trace.lanes[i];
    if (!is_string(trace, lane.name)) return at("lane", i, "no such name");
    if (static_cast<std::size_t>(lane.stream) >= kNumStreams)
      return at("lane", i, "no such stream");
  }
  for (std::size_t i = 0; i < trace.classes.size(); ++i) {
    const TraceClass& c = trace.classes[i];
    const auto kind = [](OpKind k) { return static_cast<std::size_t>(k) < kNumOpKinds; };
    if (!kind(c.kind) || !kind(c.first_kind) || !kind(c.second_kind)) {
      return at("class", i, "no such kind");
    }
    if (static_cast<std::size_t>(c.stream) >= kNumStreams) return at("class", i, "no such stream");
    if (static_cast<std::size_t>(c.payload) > 2) return at("class", i, "no such payload");
    if (c.slot < 0 || c.slot >= trace.slots) return at("class", i, "no such lane");
    if (!is_string(trace, c.group) || !is_string(trace, c.bucket) || !is_string(trace, c.name)) {
      return at("class", i, "no such text");
    }
  }
  return {};
}

Fault check_ops(const Trace& trace) {
  const std::size_t n = trace.start_ns.size();
  for (const std::size_t size : {trace.end_ns.size(), trace.op_class.size(),
                                 trace.microbatch.size(), trace.partner.size()}) {
    if (size != n) return "columns of ops differ in length";
  }
  for (const std::size_t size :
       {trace.cost_level.size(), trace.expected_start_ns.size(), trace.communicating_ns.size()}) {
    if (size != n && size != 0) return "columns of ops differ in length";
  }
  if (n > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max() - 1)) {
    return "too many ops";
  }
  if (Fault fault = check_offsets("row_begin", trace.row_begin.view(), trace.rows.size(), n);
      !fault.empty()) {
    return fault;
  }
  if (!within(trace.op_class.view(), 0, static_cast<std::int64_t>(trace.classes.size()))) {
    return "an op of no class";
  }
  if (!within(trace.microbatch.view(), -1, std::numeric_limits<std::int32_t>::max())) {
    return "a micro-batch below -1";
  }
  return {};
}

// Times are ordered, within the step, and no two ops of a lane overlap.
Fault check_times(const Trace& trace) {
  std::vector<std::int16_t> slot_of(trace.classes.size());
  for (std::size_t i = 0; i < slot_of.size(); ++i) slot_of[i] = trace.classes[i].slot;
  std::vector<std::int64_t> free_at(static_cast<std::size_t>(trace.slots));
  const std::int64_t step_begin = trace.begin.value, step_end = trace.end.value;
  if (step_begin < 0 || step_end < step_begin || step_end > (std::int64_t{1} << 50)) {
    return "the step's times are out of range";
  }
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    std::ranges::fill(free_at, step_begin);
    const auto first = static_cast<std::size_t>(trace.row_begin[row]);
    const auto last = static_cast<std::size_t>(trace.row_begin[row + 1]);
    for (std::size_t i = first; i < last; ++i) {
      const std::int64_t start = trace.start_ns[i], end = trace.end_ns[i];
      std::int64_t& free =
          free_at[static_cast<std::size_t>(slot_of[static_cast<std::size_t>(trace.op_class[i])])];
      if (start < free || end < start || end > step_end) {
        if (end < start) return at("op", i, "ends before it starts");
        if (end > step_end || start < step_begin) return at("op", i, "lies outside the step");
        return at("op", i, "starts before the op before it on its lane has ended");
      }
      free = end;
    }
  }
  return {};
}

Fault check_idle(const Trace& trace) {
  if (trace.idle_begin.empty() && trace.idle.empty()) return {};
  if (Fault fault = check_offsets("idle_begin", trace.idle_begin.view(), trace.rows.size(),
                                  trace.idle.size());
      !fault.empty()) {
    return fault;
  }
  for (std::size_t row = 0; row < trace.rows.size(); ++row) {
    std::int64_t free = trace.begin.value;
    for (auto i = static_cast<std::size_t>(trace.idle_begin[row]);
         i < static_cast<std::size_t>(trace.idle_begin[row + 1]); ++i) {
      const IdleSpan& span = trace.idle[i];
      if (span.begin < free || span.end < span.begin || span.end > trace.end.value) {
        return at("idle span", i, "overlaps another or lies outside the step");
      }
      if (static_cast<std::size_t>(span.cause) >= kNumIdleCauses) {
        return at("idle span", i, "no such cause");
      }
      if (span.op.value < -1 || span.op.value >= trace.num_ops()) {
        return at("idle span", i, "no such op");
      }
      free = span.end;
    }
  }
  return {};
}

Fault check_samples(const Trace& trace) {
  const std::size_t samples = trace.memory_time.size();
  if (!trace.memory_begin.empty() || samples != 0) {
    if (Fault fault =
            check_offsets("memory_begin", trace.memory_begin.view(), trace.rows.size(), samples);
        !fault.empty()) {
      return fault;
    }
  }
  const std::size_t parts = trace.memory_parts.size();
  if (parts > 64 || trace.memory_bytes.size() != samples * parts) {
    return "memory_bytes: not one number per sample and part";
  }
  for (std::size_t row = 0; row < trace.rows.size() && samples != 0; ++row) {
    for (auto i = static_cast<std::size_t>(trace.memory_begin[row]) + 1;
         i < static_cast<std::size_t>(trace.memory_begin[row + 1]); ++i) {
      if (trace.memory_time[i] < trace.memory_time[i - 1]) {
        return at("memory sample", i, "earlier than the one before it");
      }
    }
  }
  if (trace.link_begin.empty() && trace.links.empty() && trace.link_samples.empty()) return {};
  if (Fault fault = check_offsets("link_begin", trace.link_begin.view(), trace.links.size(),
                                  trace.link_samples.size());
      !fault.empty()) {
    return fault;
  }
  for (std::size_t link = 0; link < trace.links.size(); ++link) {
    if (!is_string(trace, trace.links[link].name)) return at("link", link, "no such name");
    for (auto i = static_cast<std::size_t>(trace.link_begin[link]) + 1;
         i < static_cast<std::size_t>(trace.link_begin[link + 1]); ++i) {
      if (trace.link_samples[i].time < trace.link_samples[i - 1].time) {
        return at("link sample", i, "earlier than the one before it");
      }
    }
  }
  return {};
}

Fault check_waits(const Trace& trace) {
  if (trace.wait_begin.empty() && trace.waits.empty()) return {};
  if (Fault fault = check_offsets("wait_begin", trace.wait_begin.view(), trace.start_ns.size(),
                                  trace.waits.size());
      !fault.empty()) {
    return fault;
  }
  if (!within(trace.waits.view(), 0, trace.num_ops())) return "a wait for no op";
  return {};
}

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
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
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

std::string trace_fault(const Trace& trace) {
  for (const auto check :
       {check_tables, check_ops, check_times, check_idle, check_samples, check_waits}) {
    if (Fault fault = check(trace); !fault.empty()) return fault;
  }
  return {};
}

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

  TemporaryFile file(path);
  bool good = file.write(&header, sizeof header) &&
              file.write(table.data(), table.size() * sizeof(Section));
  std::size_t written = sizeof header + table.size() * sizeof(Section), index = 0;
  const auto put = [&](const void* data) {
    const Section& section = table[index++];
    const std::size_t bytes = section.count * section.element_bytes;
    good = good && file.pad_to(written, section.offset) && file.write(data, bytes);
    written = section.offset + bytes;
  };
  put(texts.data());
  for_each_column(trace, [&]<class T>(SectionId, const Column<T>& column) {
    if (!column.empty()) put(column.data());
  });
  if (!good || !file.keep_as(path)) return Error{path + ": cannot write"};
  return {};
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
  std::array<char, kMagic.size()> magic{};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const bool whole = std::fread(magic.data(), 1, magic.size(), file) == magic.size();
  std::fclose(file);
  return whole && magic == kMagic;
}

}  // namespace rehearse
