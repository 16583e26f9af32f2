// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>

#include "schedules/trace/collectives_inside.h"
#include "viz/export/export.h"
#include "viz/export/file_writer.h"
#include "viz/export/json_text.h"

namespace rehearse::viz {
namespace {

// Nanoseconds as microseconds with three decimals: exact.
struct Micros {
  std::int64_t ns;
};
FileWriter& operator<<(FileWriter& out, Micros time) {
  if (time.ns < 0) {
    out << "-";
    time.ns = -time.ns;
  }
  const std::int64_t rest = time.ns % 1000;
  const std::array<char, 4> decimals{'.', static_cast<char>('0' + rest / 100),
                                     static_cast<char>('0' + rest / 10 % 10),
                                     static_cast<char>('0' + rest % 10)};
  return out << time.ns / 1000 << std::string_view(decimals.data(), decimals.size());
}

class ChromeWriter {
 public:
  ChromeWriter(const Trace& trace, const std::string& path, bool inside)
      : trace_(trace), out_(path), inside_(inside) {}

  Result<> write() {
    out_ << "{\"displayTimeUnit\":\"ms\",\n";
    about();
    out_ << "\"traceEvents\":[";
    names();
    ops();
    if (inside_) inside();
    bubbles();
    memory();
    links();
    transfers();
    out_ << "\n]}\n";
    return out_.finish();
  }

 private:
  FileWriter& event() {
    out_ << (first_ ? "\n" : ",\n");
    first_ = false;
    return out_;
  }

  // What events do not hold; the importer needs it before them.
  void about() {
    out_ << "\"rehearse\":{\"version\":1,\"label\":"
         << (trace_.label == TraceLabel::Predicted ? "\"predicted\"" : "\"measured\"")
         << ",\"schedule_hash\":" << json_string(trace_.schedule_hash)
         << ",\"schedule\":" << json_string(trace_.schedule_name)
         << ",\"title\":" << json_string(trace_.title)
         << ",\"caption\":" << json_string(trace_.caption)
         << ",\"microbatches\":" << trace_.microbatches << ",\"slots\":" << trace_.slots
         << ",\"waits\":" << (trace_.wait_begin.empty() ? "false" : "true")
         << ",\"idle\":" << (trace_.idle_begin.empty() ? "false" : "true") << ",\n \"rows\":[";
    for (std::size_t r = 0; r < trace_.rows.size(); ++r) {
      const TraceRow& row = trace_.rows[r];
      out_ << (r == 0 ? "" : ",") << "{\"position\":" << row.position.value
           << ",\"multiplicity\":" << row.multiplicity << ",\"first_rank\":" << row.first_rank.value
           << ",\"capacity_bytes\":" << row.capacity_bytes;
      if (!trace_.row_class.empty()) out_ << ",\"class\":" << trace_.row_class[r];
      if (row.name >= 0) out_ << ",\"name\":" << json_string(trace_.text(row.name));
      out_ << "}";
    }
    out_ << "],\n \"lanes\":[";
    for (std::size_t l = 0; l < trace_.lanes.size(); ++l) {
      const TraceLane& lane = trace_.lanes[l];
      out_ << (l == 0 ? "" : ",") << "{\"stream\":" << static_cast<std::int32_t>(lane.stream);
      if (lane.name >= 0) out_ << ",\"name\":" << json_string(trace_.text(lane.name));
      out_ << "}";
    }
    out_ << "],\n \"memory_parts\":[";
    for (std::size_t p = 0; p < trace_.memory_parts.size(); ++p) {
      out_ << (p == 0 ? "" : ",") << json_string(trace_.memory_parts[p]);
    }
    out_ << "],\n \"links\":[";
    for (std::size_t k = 0; k < trace_.links.size(); ++k) {
      out_ << (k == 0 ? "" : ",") << "{\"name\":" << json_string(trace_.text(trace_.links[k].name))
           << ",\"bytes_per_second\":" << trace_.links[k].bytes_per_second << "}";
    }
    out_ << "]},\n";
  }

  void names() {
    for (std::int32_t row = 0; row < trace_.num_rows(); ++row) {
      event() << "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" << row
              << ",\"args\":{\"name\":" << json_string(row_name(trace_, {row})) << "}}";
      event() << "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":" << row
              << ",\"args\":{\"sort_index\":" << row << "}}";
      for (std::int32_t slot = 0; slot < trace_.slots; ++slot) {
        event() << "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" << row << ",\"tid\":" << slot
                << ",\"args\":{\"name\":"
                << json_string(lane_name(trace_, row * trace_.slots + slot)) << "}}";
      }
      if (!trace_.idle.empty()) {
        event() << "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" << row
                << ",\"tid\":" << trace_.slots << ",\"args\":{\"name\":\"bubbles\"}}";
      }
      if (inside_) {
        event() << "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":" << row
                << ",\"tid\":" << trace_.slots + 1
                << ",\"args\":{\"name\":\"collectives inside ops\"}}";
      }
    }
  }

  // An X event's place in time. Readers add ts and dur as doubles and nest what touches, so the end
  // is drawn 1 ns early; an event of 1 ns or none keeps its length.
  void times(std::int64_t start, std::int64_t end) {
    const std::int64_t duration = end - start;
    out_ << ",\"ts\":" << Micros{start}
         << ",\"dur\":" << Micros{std::max<std::int64_t>(duration - 1, 0)};
  }

  void ops() {
    for (std::int32_t row = 0; row < trace_.num_rows(); ++row) {
      for (auto i = static_cast<std::size_t>(trace_.row_begin[static_cast<std::size_t>(row)]);
           i < static_cast<std::size_t>(trace_.row_begin[static_cast<std::size_t>(row) + 1]); ++i) {
        const OpId op{static_cast<std::int32_t>(i)};
        const TraceClass& c = trace_.class_of(op);
        event() << "{\"ph\":\"X\",\"name\":" << json_string(op_name(trace_, op))
                << ",\"cat\":" << json_string(stream_name(c.stream)) << ",\"pid\":" << row
                << ",\"tid\":" << std::int32_t{c.slot};
        times(trace_.start_ns[i], trace_.end_ns[i]);
        out_ << ",\"args\":{\"op\":" << op.value << ",\"end_ns\":" << trace_.end_ns[i];
        class_args(c);
        if (trace_.microbatch[i] >= 0) out_ << ",\"microbatch\":" << trace_.microbatch[i];
        if (trace_.partner[i] >= 0) out_ << ",\"partner\":" << trace_.partner[i];
        if (!trace_.cost_level.empty())
          out_ << ",\"cost_level\":" << std::int32_t{trace_.cost_level[i]};
        if (!trace_.expected_start_ns.empty())
          out_ << ",\"expected_start_ns\":" << trace_.expected_start_ns[i];
        if (!trace_.communicating_ns.empty())
          out_ << ",\"communicating_ns\":" << trace_.communicating_ns[i];
        if (!trace_.wait_begin.empty() && trace_.wait_begin[i] < trace_.wait_begin[i + 1]) {
          out_ << ",\"waits\":[";
          for (std::int32_t w = trace_.wait_begin[i]; w < trace_.wait_begin[i + 1]; ++w) {
            out_ << (w == trace_.wait_begin[i] ? "" : ",")
                 << trace_.waits[static_cast<std::size_t>(w)];
          }
          out_ << "]";
        }
        out_ << "}}";
      }
    }
  }

  void class_args(const TraceClass& c) {
    out_ << ",\"kind\":\"" << traits(c.kind).name << "\"";
    if (c.stream != traits(c.kind).stream)
      out_ << ",\"stream\":" << static_cast<std::int32_t>(c.stream);
    if (c.payload != Payload::None) out_ << ",\"payload\":" << static_cast<std::int32_t>(c.payload);
    if (c.slice >= 0) out_ << ",\"slice\":" << std::int32_t{c.slice};
    if (c.segment_end >= 0) {
      out_ << ",\"segment_begin\":" << std::int32_t{c.segment_begin}
           << ",\"segment_end\":" << std::int32_t{c.segment_end};
    }
    if (c.stage) out_ << ",\"stage\":" << c.stage.value;
    if (c.kind == OpKind::Overlap && c.second_stage) {
      out_ << ",\"first_kind\":\"" << traits(c.first_kind).name << "\",\"second_kind\":\""
           << traits(c.second_kind).name << "\",\"second_stage\":" << c.second_stage.value;
      if (c.second_slice >= 0) out_ << ",\"second_slice\":" << std::int32_t{c.second_slice};
    }
    if (c.group >= 0) out_ << ",\"group\":" << json_string(trace_.text(c.group));
    if (c.bucket >= 0) out_ << ",\"bucket\":" << json_string(trace_.text(c.bucket));
    if (c.name >= 0) out_ << ",\"name\":" << json_string(trace_.text(c.name));
    if (c.bytes > 0) out_ << ",\"bytes\":" << c.bytes;
  }

  void inside() {
    for (std::int32_t row = 0; row < trace_.num_rows(); ++row) {
      for (auto i = trace_.row_begin[static_cast<std::size_t>(row)];
           i < trace_.row_begin[static_cast<std::size_t>(row) + 1]; ++i) {
        const OpId op{static_cast<std::int32_t>(i)};
        for (const InsideCollective& one : collectives_inside(trace_, op)) {
          event() << "{\"ph\":\"X\",\"name\":" << json_string(one.name)
                  << ",\"cat\":\"inside\",\"pid\":" << row << ",\"tid\":" << trace_.slots + 1;
          times(one.begin_ns, one.end_ns);
          out_ << ",\"args\":{\"op\":" << op.value << ",\"kind\":\"" << traits(one.kind).name
               << "\",\"group\":\"" << traits(one.group).name << "\",\"bytes\":" << one.bytes
               << "}}";
        }
      }
    }
  }

  void bubbles() {
    for (std::size_t row = 0; row < trace_.rows.size() && !trace_.idle.empty(); ++row) {
      for (auto i = static_cast<std::size_t>(trace_.idle_begin[row]);
           i < static_cast<std::size_t>(trace_.idle_begin[row + 1]); ++i) {
        const IdleSpan& span = trace_.idle[i];
        event() << "{\"ph\":\"X\",\"name\":\""
                << kIdleCauseNames[static_cast<std::size_t>(span.cause)]
                << "\",\"cat\":\"bubble\",\"pid\":" << static_cast<std::int64_t>(row)
                << ",\"tid\":" << trace_.slots;
        times(span.begin, span.end);
        out_ << ",\"args\":{\"op\":" << span.op.value << ",\"end_ns\":" << span.end << "}}";
      }
    }
  }

  void memory() {
    const std::size_t parts = trace_.memory_parts.size();
    for (std::size_t row = 0; row < trace_.rows.size() && !trace_.memory_time.empty(); ++row) {
      for (auto i = static_cast<std::size_t>(trace_.memory_begin[row]);
           i < static_cast<std::size_t>(trace_.memory_begin[row + 1]); ++i) {
        event() << "{\"ph\":\"C\",\"name\":\"memory\",\"pid\":" << static_cast<std::int64_t>(row)
                << ",\"ts\":" << Micros{trace_.memory_time[i]} << ",\"args\":{";
        for (std::size_t p = 0; p < parts; ++p) {
          out_ << (p == 0 ? "" : ",") << json_string(trace_.memory_parts[p]) << ":"
               << trace_.memory_bytes[i * parts + p];
        }
        out_ << "}}";
      }
    }
  }

  void links() {
    if (trace_.links.empty()) return;
    event() << "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":" << trace_.num_rows()
            << ",\"args\":{\"name\":\"links\"}}";
    for (std::size_t link = 0; link < trace_.links.size(); ++link) {
      for (auto i = static_cast<std::size_t>(trace_.link_begin[link]);
           i < static_cast<std::size_t>(trace_.link_begin[link + 1]); ++i) {
        event() << "{\"ph\":\"C\",\"name\":" << json_string(trace_.text(trace_.links[link].name))
                << ",\"id\":" << static_cast<std::int64_t>(link) << ",\"pid\":" << trace_.num_rows()
                << ",\"ts\":" << Micros{trace_.link_samples[i].time}
                << ",\"args\":{\"load_ppm\":" << trace_.link_samples[i].load_ppm << "}}";
      }
    }
  }

  // An arrow from each SEND to its RECV: `s` inside the source slice, `f` inside the target's.
  void transfers() {
    struct End {
      std::int32_t match, op;
      bool operator<(const End& other) const {
        return match != other.match ? match < other.match : op < other.op;
      }
    };
    std::vector<End> sends, recvs;
    for (OpId op{0}; op.value < trace_.num_ops(); ++op.value) {
      const OpKind kind = trace_.class_of(op).kind;
      if (trace_.partner[op.index()] < 0) continue;
      if (kind == OpKind::Send) sends.push_back({trace_.partner[op.index()], op.value});
      if (kind == OpKind::Recv) recvs.push_back({trace_.partner[op.index()], op.value});
    }
    std::ranges::sort(sends, std::less{});
    std::ranges::sort(recvs, std::less{});
    std::size_t r = 0;
    for (std::size_t s = 0; s < sends.size(); ++s) {
      while (r < recvs.size() && recvs[r].match < sends[s].match) ++r;
      if (r == recvs.size() || recvs[r].match != sends[s].match) continue;
      if (s > 0 && sends[s - 1].match == sends[s].match) continue;  // one arrow per match
      flow("s", sends[s].match, {sends[s].op});
      flow("f", sends[s].match, {recvs[r].op});
    }
  }

  void flow(std::string_view phase, std::int32_t id, OpId op) {
    const TraceClass& c = trace_.class_of(op);
    event() << "{\"ph\":\"" << phase << "\"" << (phase == "f" ? ",\"bp\":\"e\"" : "")
            << ",\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":" << id
            << ",\"pid\":" << trace_.row_of(op).value << ",\"tid\":" << std::int32_t{c.slot}
            << ",\"ts\":" << Micros{trace_.start_ns[op.index()]} << "}";
  }

  const Trace& trace_;
  FileWriter out_;
  bool inside_;
  bool first_ = true;
};

}  // namespace

Result<> export_chrome(const Trace& trace, const std::string& path, bool inside) {
  return ChromeWriter(trace, path, inside).write();
}

}  // namespace rehearse::viz
