// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <tuple>

#include "viz/import/import.h"
#include "viz/import/import_events.h"
#include "viz/import/json_scanner.h"

namespace rehearse::viz {
namespace {

using Category = ForeignEvent::Category;

std::optional<OpKind> kind_named(std::string_view name) {
  for (std::size_t kind = 0; kind < kNumOpKinds; ++kind) {
    if (kOpTraits[kind].name == name) return static_cast<OpKind>(kind);
  }
  return std::nullopt;
}

class ChromeReader {
 public:
  ChromeReader(std::string_view text, ForeignEvents& out) : in_(text), out_(out) {}

  // The whole file: an object with "traceEvents", or the bare list.
  void read() {
    if (in_.peek() == '[') {
      events();
    } else {
      bool first = true, found = false;
      std::string_view key;
      if (!in_.enter('{')) return;
      while (in_.next_key(first, key)) {
        if (key == "traceEvents") {
          found = true;
          events();
        } else if (key == "rehearse") {
          about();
        } else if (key == "distributedInfo") {
          distributed();
        } else if (key == "baseTimeNanoseconds" && in_.peek() != '"') {
          out_.base_ns = in_.integer();
        } else {
          in_.skip();
        }
      }
      if (in_.ok() && !found) {
        in_.fail(
            "\"traceEvents\" is missing: no profile, and no trace; "
            "rehearse simulate SCENARIO --trace FILE makes one");
      }
    }
    in_.expect_end();
  }

  const JsonScanner& scanner() const { return in_; }

 private:
  std::int32_t integer32() {
    const std::int64_t value = in_.integer();
    if (value < INT32_MIN || value > INT32_MAX) in_.fail("a smaller number was expected");
    return static_cast<std::int32_t>(value);
  }
  template <class Small>
  Small small() {
    const std::int64_t value = in_.integer();
    if (value < std::numeric_limits<Small>::min() || value > std::numeric_limits<Small>::max()) {
      in_.fail("a smaller number was expected");
    }
    return static_cast<Small>(value);
  }
  Stream stream() {
    const auto value = small<std::uint8_t>();
    if (value >= kNumStreams) in_.fail("a stream was expected");
    return static_cast<Stream>(value);
  }
  OpKind kind() {
    const std::optional<OpKind> found = kind_named(in_.raw_string());
    if (!found) in_.fail("a kind of op was expected");
    return found.value_or(OpKind::Forward);
  }

  void events() {
    bool first = true;
    if (!in_.enter('[')) return;
    while (in_.next_item(first)) event();
  }

  void event() {
    ForeignEvent e{.id = out_.ours ? 0 : -1};
    bool first = true;
    std::string_view key;
    std::string_view category;
    char phase = 0;
    args_ = {};
    if (!in_.enter('{')) return;
    while (in_.next_key(first, key)) {
      if (key == "ph") {
        const std::string_view value = in_.raw_string();
        phase = value.empty() ? '\0' : value[0];
      } else if (key == "name" && in_.peek() == '"') {
        e.name = out_.texts.id(in_.raw_string());
      } else if (key == "cat" && in_.peek() == '"') {
        category = in_.raw_string();
      } else if (key == "pid") {
        e.process = out_.texts.id(identifier());
      } else if (key == "tid") {
        e.thread = out_.texts.id(identifier());
      } else if (key == "ts") {
        e.start = in_.micros();
      } else if (key == "dur") {
        e.duration = in_.micros();
      } else if (key == "id" && out_.ours) {
        e.id = integer32();
      } else if (key == "args" && in_.peek() == '{') {
        if (phase == 'C') {
          counter_args();
        } else if (phase == 'M') {
          name_args();
        } else if (out_.ours) {
          op_args();
        } else if (category == "kernel") {
          e.id = collective_args(e);
        } else if (category == "cpu_op" && out_.texts.view(e.name).starts_with("c10d::")) {
          e.peer = peer_args();
        } else {
          in_.skip();
        }
      } else {
        in_.skip();
      }
    }
    if (!in_.ok()) return;
    switch (phase) {
      case 'X':
      case 'B':
      case 'E':
        e.phase = phase;
        e.category = category_of(category);
        if (out_.ours) {
          ours(e);
        } else {
          out_.events.push_back(e);
        }
        break;
      case 'M':
        out_.name(e, args_.name);
        break;
      case 'C':
        if (out_.ours) sample(e);
        break;
      default:
        break;  // flows, instants: nothing that takes time
    }
  }

  // A pid or tid: its number, or its text.
  std::string_view identifier() {
    if (in_.peek() == '"') return in_.raw_string();
    const std::size_t from = in_.offset();
    in_.skip();
    return in_.text_since(from);
  }

  Category category_of(std::string_view category) const {
    if (category == "kernel" || category == "Kernel") return Category::Kernel;
    if (category == "gpu_memcpy" || category == "gpu_memset" || category == "Memcpy")
      return Category::Copy;
    if (category == "gpu_user_annotation") return Category::Range;
    if (category == "user_annotation") return Category::Annotation;
    if (category == "cpu_op") return Category::Operator;
    if (category == "bubble") return Category::Bubble;
    if (category == "inside" && out_.ours) return Category::Inside;
    return Category::Other;
  }

  // --- "rehearse", and what only our own events have ---

  void about() {
    out_.ours = true;
    Trace& trace = out_.trace;
    bool first = true;
    std::string_view key;
    if (!in_.enter('{')) return;
    while (in_.next_key(first, key)) {
      if (key == "label") {
        trace.label = in_.raw_string() == "measured" ? TraceLabel::Measured : TraceLabel::Predicted;
      } else if (key == "schedule_hash") {
        trace.schedule_hash = in_.string();
      } else if (key == "schedule") {
        trace.schedule_name = in_.string();
      } else if (key == "title") {
        trace.title = in_.string();
      } else if (key == "caption") {
        trace.caption = in_.string();
      } else if (key == "microbatches") {
        trace.microbatches = integer32();
      } else if (key == "slots") {
        trace.slots = integer32();
      } else if (key == "waits") {
        out_.has_waits = in_.boolean();
      } else if (key == "idle") {
        out_.has_idle = in_.boolean();
      } else if (key == "rows") {
        rows();
      } else if (key == "lanes") {
        lanes();
      } else if (key == "links") {
        links();
      } else if (key == "memory_parts") {
        bool first_part = true;
        if (!in_.enter('[')) return;
        while (in_.next_item(first_part)) trace.memory_parts.push_back(in_.string());
      } else {
        in_.skip();
      }
    }
  }

  void rows() {
    bool first = true;
    if (!in_.enter('[')) return;
    while (in_.next_item(first)) {
      TraceRow row;
      bool first_key = true;
      std::string_view key;
      if (!in_.enter('{')) return;
      while (in_.next_key(first_key, key)) {
        if (key == "position") {
          row.position = {integer32()};
        } else if (key == "multiplicity") {
          row.multiplicity = integer32();
        } else if (key == "first_rank") {
          row.first_rank = {integer32()};
        } else if (key == "capacity_bytes") {
          row.capacity_bytes = in_.integer();
        } else if (key == "class") {
          out_.row_class.push_back(integer32());
        } else if (key == "name") {
          row.name = out_.text(in_.string());
        } else {
          in_.skip();
        }
      }
      out_.rows.push_back(row);
    }
  }

  void lanes() {
    bool first = true;
    if (!in_.enter('[')) return;
    while (in_.next_item(first)) {
      TraceLane lane;
      bool first_key = true;
      std::string_view key;
      if (!in_.enter('{')) return;
      while (in_.next_key(first_key, key)) {
        if (key == "stream") {
          lane.stream = stream();
        } else if (key == "name") {
          lane.name = out_.text(in_.string());
        } else {
          in_.skip();
        }
      }
      out_.lanes.push_back(lane);
    }
  }

  void links() {
    bool first = true;
    if (!in_.enter('[')) return;
    while (in_.next_item(first)) {
      TraceLink link;
      bool first_key = true;
      std::string_view key;
      if (!in_.enter('{')) return;
      while (in_.next_key(first_key, key)) {
        if (key == "name") {
          link.name = out_.text(in_.string());
        } else if (key == "bytes_per_second") {
          link.bytes_per_second = in_.integer();
        } else {
          in_.skip();
        }
      }
      out_.links.push_back(link);
    }
  }

  void distributed() {
    bool first = true;
    std::string_view key;
    if (in_.peek() != '{') return in_.skip();
    in_.enter('{');
    while (in_.next_key(first, key)) {
      if (key == "rank" && in_.peek() != '"') {
        out_.rank = integer32();
      } else {
        in_.skip();
      }
    }
  }

  struct Args {
    std::string name;  // of metadata
    OurOp op;
    std::vector<std::int64_t> counters;
  };

  void name_args() {
    bool first = true;
    std::string_view key;
    in_.enter('{');
    while (in_.next_key(first, key)) {
      if (key == "name" && in_.peek() == '"') {
        args_.name = in_.string();
      } else {
        in_.skip();
      }
    }
  }

  // Index into collectives; -1: the kernel is none.
  std::int32_t collective_args(ForeignEvent& e) {
    Collective found;
    std::int64_t in_elements = 0, out_elements = 0, element = 0;
    bool first = true;
    std::string_view key;
    in_.enter('{');
    while (in_.next_key(first, key)) {
      if (key == "Collective name" && in_.peek() == '"') {
        found.name = out_.texts.id(in_.raw_string());
      } else if (key == "Process Group Description" && in_.peek() == '"') {
        found.group = out_.texts.id(in_.raw_string());
      } else if (key == "dtype" && in_.peek() == '"') {
        element = element_bytes(in_.raw_string());
      } else if (key == "In msg nelems" && in_.peek() != '"') {
        in_elements = in_.integer();
      } else if (key == "Out msg nelems" && in_.peek() != '"') {
        out_elements = in_.integer();
      } else if (key == "Process Group Name" && in_.peek() == '"') {
        e.group = out_.texts.id(in_.raw_string());
      } else if ((key == "Src Rank" || key == "Dst Rank") && in_.peek() != '"') {
        const std::int64_t end = in_.integer();  // of the whole job, whatever the group
        if (end >= 0 && end <= INT32_MAX) e.peer = static_cast<std::int32_t>(end);
      } else {
        in_.skip();
      }
    }
    if (found.name < 0) return -1;
    constexpr std::int64_t kMost = std::int64_t{1} << 48;  // more elements is no message
    found.bytes = std::clamp<std::int64_t>(std::max(in_elements, out_elements), 0, kMost) * element;
    const auto [at, fresh] = known_.try_emplace(  // a step repeats a few of them
        {found.name, found.group, found.bytes}, static_cast<std::int32_t>(known_.size()));
    if (fresh) out_.collectives.push_back(found);
    return at->second;
  }

  // torch's c10d::send(tensors, group, dst, tag) and recv_(tensors, group, src, tag), where shapes
  // were recorded: "Concrete Inputs": ["", "", "1", "0"].
  std::int32_t peer_args() {
    std::int32_t peer = -1;
    bool first = true;
    std::string_view key;
    in_.enter('{');
    while (in_.next_key(first, key)) {
      if (key != "Concrete Inputs" || in_.peek() != '[') {
        in_.skip();
        continue;
      }
      bool first_item = true;
      in_.enter('[');
      for (int i = 0; in_.next_item(first_item); ++i) {
        if (i != 2 || in_.peek() != '"') {
          in_.skip();
          continue;
        }
        const std::string_view digits = in_.raw_string();
        std::from_chars(digits.data(), digits.data() + digits.size(), peer);
      }
    }
    return peer;
  }

  void counter_args() {
    if (!out_.ours) return in_.skip();
    bool first = true;
    std::string_view key;
    in_.enter('{');
    while (in_.next_key(first, key)) args_.counters.push_back(in_.integer());
  }

  void op_args() {
    OurOp& op = args_.op;
    TraceClass& c = op.op_class;
    bool first = true, has_stream = false;
    std::string_view key;
    in_.enter('{');
    while (in_.next_key(first, key)) {
      if (key == "op") {
        op.id = integer32();
      } else if (key == "end_ns") {
        op.end = in_.integer();
      } else if (key == "kind") {
        c.kind = kind();
      } else if (key == "stream") {
        c.stream = stream();
        has_stream = true;
      } else if (key == "payload") {
        c.payload = static_cast<Payload>(small<std::uint8_t>());
      } else if (key == "slice") {
        c.slice = small<std::int8_t>();
      } else if (key == "segment_begin") {
        c.segment_begin = small<std::int16_t>();
      } else if (key == "segment_end") {
        c.segment_end = small<std::int16_t>();
      } else if (key == "stage") {
        c.stage = {integer32()};
      } else if (key == "first_kind") {
        c.first_kind = kind();
      } else if (key == "second_kind") {
        c.second_kind = kind();
      } else if (key == "second_stage") {
        c.second_stage = {integer32()};
      } else if (key == "second_slice") {
        c.second_slice = small<std::int8_t>();
      } else if (key == "group") {
        c.group = out_.text(in_.string());
      } else if (key == "bucket") {
        c.bucket = out_.text(in_.string());
      } else if (key == "name") {
        c.name = out_.text(in_.string());
      } else if (key == "bytes") {
        c.bytes = in_.integer();
      } else if (key == "microbatch") {
        op.microbatch = integer32();
      } else if (key == "partner") {
        op.partner = integer32();
      } else if (key == "cost_level") {
        op.cost_level = small<std::uint8_t>();
      } else if (key == "expected_start_ns") {
        op.expected_start = in_.integer();
      } else if (key == "communicating_ns") {
        op.communicating = in_.integer();
      } else if (key == "waits") {
        bool first_wait = true;
        if (!in_.enter('[')) return;
        while (in_.next_item(first_wait)) {
          out_.waits.push_back(integer32());
          ++op.num_waits;
        }
      } else {
        in_.skip();
      }
    }
    if (!has_stream) c.stream = traits(c.kind).stream;
  }

  // pid is the row, tid the slot; the slot after the last holds the bubbles.
  void ours(const ForeignEvent& e) {
    if (e.category == Category::Inside) return;  // of bodies, which Chrome's file does not hold
    OurOp& op = args_.op;
    op.start = e.start;
    op.row = out_.number(e.process);
    const std::int32_t slot = out_.number(e.thread);
    if (e.category == Category::Bubble) {
      IdleSpan span{.begin = e.start, .end = op.end, .op = {op.id}};
      const std::string_view name = out_.texts.view(e.name);
      const auto cause = std::ranges::find(kIdleCauseNames, name);
      if (cause == std::end(kIdleCauseNames)) return in_.fail("a cause was expected");
      span.cause = static_cast<IdleCause>(cause - std::begin(kIdleCauseNames));
      out_.idle.emplace_back(op.row, span);
      return;
    }
    if (slot < 0 || slot > 32767) return in_.fail("a lane was expected");
    op.op_class.slot = static_cast<std::int16_t>(slot);
    out_.ops.push_back(op);
  }

  void sample(const ForeignEvent& e) {
    const std::int32_t row = out_.number(e.process);
    if (row == static_cast<std::int32_t>(out_.rows.size())) {
      if (args_.counters.size() != 1) return in_.fail("one number was expected");
      const std::int64_t load = std::clamp<std::int64_t>(args_.counters[0], 0, INT32_MAX);
      out_.loads.push_back({e.id, {.time = e.start, .load_ppm = static_cast<std::int32_t>(load)}});
      return;
    }
    if (args_.counters.size() != out_.trace.memory_parts.size()) {
      return in_.fail("one number per part of memory was expected");
    }
    out_.memory.push_back({row, e.start});
    out_.memory_bytes.insert(out_.memory_bytes.end(), args_.counters.begin(), args_.counters.end());
  }

  JsonScanner in_;
  ForeignEvents& out_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, std::int32_t> known_;
  Args args_;
};

}  // namespace

Result<Trace> import_chrome(std::string_view text, const std::string& name) {
  Result<Profile> read = import_profile(text, name);
  if (!read) return read.error();
  return std::move(read).value().trace;
}

Result<> read_chrome_events(std::string_view text, const std::string& name, ForeignEvents& events) {
  ChromeReader reader(text, events);
  reader.read();
  if (reader.scanner().ok()) return {};
  return Error{name + ": byte " + std::to_string(reader.scanner().offset()) + ": " +
               reader.scanner().fault()};
}

Result<Profile> import_profile(std::string_view text, const std::string& name) {
  ForeignEvents events;
  if (const Result<> read = read_chrome_events(text, name, events); !read) return read.error();
  Result<Trace> built = events.ours ? build_ours(events) : build_foreign(events, name);
  if (!built) return Error{name + ": " + built.error().message};
  Profile profile{.trace = std::move(built).value(), .rank = events.rank, .ours = events.ours};
  constexpr std::int64_t kMost = std::int64_t{1} << 61;  // of both, so that their sum is in range
  profile.origin_ns = std::clamp<std::int64_t>(events.base_ns, 0, kMost) +
                      std::clamp<std::int64_t>(events.begin_ns, -kMost, kMost);
  if (const std::string fault = trace_fault(profile.trace); !fault.empty())
    return Error{name + ": " + fault};
  return profile;
}

}  // namespace rehearse::viz
