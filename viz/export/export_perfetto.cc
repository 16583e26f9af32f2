// SPDX-License-Identifier: Apache-2.0
// Perfetto's protobuf, by hand: a message is a run of (field number << 3 | wire type, value).
//
// One track per row, under it one per lane, the bubbles, and a counter per memory part; links are
// counters of their own. Causes and annotations are interned; an op's name is nearly unique, and is
// written out.
#include <array>
#include <span>

#include "schedules/trace/collectives_inside.h"
#include "viz/export/export.h"
#include "viz/export/file_writer.h"

namespace rehearse::viz {
namespace {

// Field numbers of perfetto_trace.proto.
namespace field {
constexpr std::uint32_t kTracePacket = 1;
constexpr std::uint32_t kTimestamp = 8, kSequence = 10, kTrackEvent = 11, kInterned = 12,
                        kSequenceFlags = 13, kTrackDescriptor = 60;  // TracePacket
constexpr std::uint32_t kUuid = 1, kName = 2, kParent = 5, kCounter = 8, kChildOrdering = 11,
                        kSiblingRank = 12;  // TrackDescriptor
constexpr std::uint32_t kUnit = 3;          // CounterDescriptor
constexpr std::uint32_t kAnnotation = 4, kType = 9, kNameIid = 10, kTrack = 11, kEventName = 23,
                        kCounterValue = 30, kFlow = 47, kTerminatingFlow = 48;  // TrackEvent
constexpr std::uint32_t kAnnotationName = 1, kAnnotationUint = 3, kAnnotationInt = 4;
constexpr std::uint32_t kEventNames = 2, kAnnotationNames = 3;  // InternedData
constexpr std::uint32_t kIid = 1, kText = 2;                    // EventName
}  // namespace field

enum EventType : std::uint64_t { kBegin = 1, kEnd = 2, kCounterSample = 4 };
enum Annotations : std::uint64_t { kOp = 1, kMicrobatch, kStage, kBytes, kPartner };
constexpr std::array<std::string_view, 5> kAnnotationTexts{"op", "microbatch", "stage", "bytes",
                                                           "match"};

class Message {
 public:
  void number(std::uint32_t id, std::uint64_t value) {
    varint(id << 3);
    varint(value);
  }
  void fixed64(std::uint32_t id, std::uint64_t value) {
    varint(id << 3 | 1);
    for (int byte = 0; byte < 8; ++byte) bytes_ += static_cast<char>((value >> (8 * byte)) & 255);
  }
  void text(std::uint32_t id, std::string_view value) {
    varint(id << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(std::uint32_t id, const Message& value) { text(id, value.bytes_); }
  void clear() { bytes_.clear(); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

class PerfettoWriter {
 public:
  PerfettoWriter(const Trace& trace, const std::string& path, bool inside)
      : trace_(trace), out_(path), inside_(inside) {}

  Result<> write() {
    describe_tracks();
    for (std::int32_t row = 0; row < trace_.num_rows(); ++row) {
      for (std::int32_t slot = 0; slot < trace_.slots; ++slot) ops(row, slot);
      bubbles(row);
      if (inside_) inside(row);
      memory(row);
    }
    for (std::size_t link = 0; link < trace_.links.size(); ++link) load(link);
    return out_.finish();
  }

 private:
  std::uint64_t row_track(std::int32_t row) const { return 1 + static_cast<std::uint64_t>(row); }
  // Tracks of a row: lanes, bubbles, what is inside ops, memory parts.
  std::uint64_t child_track(std::int32_t row, std::size_t child) const {
    const std::uint64_t per_row =
        static_cast<std::uint64_t>(trace_.slots) + 1 + inside_ + trace_.memory_parts.size();
    return 1 + trace_.rows.size() + static_cast<std::uint64_t>(row) * per_row + child;
  }
  std::uint64_t link_track(std::size_t link) const {
    return child_track(trace_.num_rows(), 0) + link;
  }

  void packet(Message& body) {
    body.number(field::kSequence, 1);
    body.number(field::kSequenceFlags,
                first_ ? 3 : 2);  // 1: state cleared; 2: needs what came before
    first_ = false;
    Message whole;
    whole.message(field::kTracePacket, body);
    out_ << whole.bytes();
  }

  void describe(std::uint64_t uuid, std::uint64_t parent, std::string_view name, std::uint64_t rank,
                int counter_unit) {
    Message track;
    track.number(field::kUuid, uuid);
    track.text(field::kName, name);
    if (parent != 0) track.number(field::kParent, parent);
    if (counter_unit >= 0) {
      Message counter;
      if (counter_unit > 0) counter.number(field::kUnit, static_cast<std::uint64_t>(counter_unit));
      track.message(field::kCounter, counter);
    }
    track.number(field::kChildOrdering, 3);  // explicit, by rank
    track.number(field::kSiblingRank, rank);
    Message body;
    body.message(field::kTrackDescriptor, track);
    packet(body);
  }

  void describe_tracks() {
    constexpr int kNoCounter = -1, kPlainCounter = 0, kBytesCounter = 3;
    for (std::int32_t row = 0; row < trace_.num_rows(); ++row) {
      describe(row_track(row), 0, row_name(trace_, {row}), static_cast<std::uint64_t>(row),
               kNoCounter);
      std::size_t child = 0;
      for (std::int32_t slot = 0; slot < trace_.slots; ++slot, ++child) {
        describe(child_track(row, child), row_track(row),
                 lane_name(trace_, row * trace_.slots + slot), child, kNoCounter);
      }
      describe(child_track(row, child), row_track(row), "bubbles", child, kNoCounter);
      if (inside_) {
        ++child;
        describe(child_track(row, child), row_track(row), "collectives inside ops", child,
                 kNoCounter);
      }
      for (const std::string& part : trace_.memory_parts) {
        ++child;
        describe(child_track(row, child), row_track(row), part, child, kBytesCounter);
      }
    }
    for (std::size_t link = 0; link < trace_.links.size(); ++link) {
      describe(link_track(link), 0, trace_.text(trace_.links[link].name), trace_.rows.size() + link,
               kPlainCounter);
    }
    Message interned, body;
    const auto intern = [&interned](std::uint32_t id, std::span<const std::string_view> texts) {
      for (std::size_t i = 0; i < texts.size(); ++i) {
        Message name;
        name.number(field::kIid, i + 1);
        name.text(field::kText, texts[i]);
        interned.message(id, name);
      }
    };
    intern(field::kEventNames, kIdleCauseNames);
    intern(field::kAnnotationNames, kAnnotationTexts);
    body.message(field::kInterned, interned);
    packet(body);
  }

  void annotate(Message& event, std::uint64_t name, std::int64_t value) {
    Message annotation;
    annotation.number(field::kAnnotationName, name);
    annotation.number(value >= 0 ? field::kAnnotationUint : field::kAnnotationInt,
                      static_cast<std::uint64_t>(value));
    event.message(field::kAnnotation, annotation);
  }

  void end(std::uint64_t track, std::int64_t time) {
    Message event, body;
    event.number(field::kType, kEnd);
    event.number(field::kTrack, track);
    body.number(field::kTimestamp, static_cast<std::uint64_t>(time));
    body.message(field::kTrackEvent, event);
    packet(body);
  }

  void ops(std::int32_t row, std::int32_t slot) {
    const std::uint64_t track = child_track(row, static_cast<std::size_t>(slot));
    for (auto i = static_cast<std::size_t>(trace_.row_begin[static_cast<std::size_t>(row)]);
         i < static_cast<std::size_t>(trace_.row_begin[static_cast<std::size_t>(row) + 1]); ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      const TraceClass& c = trace_.class_of(op);
      if (c.slot != slot) continue;
      Message event, body;
      body.number(field::kTimestamp, static_cast<std::uint64_t>(trace_.start_ns[i]));
      annotate(event, kOp, op.value);
      if (trace_.microbatch[i] >= 0) annotate(event, kMicrobatch, trace_.microbatch[i]);
      if (c.stage) annotate(event, kStage, c.stage.value);
      if (c.bytes > 0) annotate(event, kBytes, c.bytes);
      event.number(field::kType, kBegin);
      event.text(field::kEventName, op_name(trace_, op));
      event.number(field::kTrack, track);
      if (trace_.partner[i] >= 0 && c.kind != OpKind::Overlap) {
        annotate(event, kPartner, trace_.partner[i]);
        const auto flow = 1 + static_cast<std::uint64_t>(trace_.partner[i]);
        if (c.kind == OpKind::Send) event.fixed64(field::kFlow, flow);
        if (c.kind == OpKind::Recv) event.fixed64(field::kTerminatingFlow, flow);
      }
      body.message(field::kTrackEvent, event);
      packet(body);
      end(track, trace_.end_ns[i]);
    }
  }

  void bubbles(std::int32_t row) {
    if (trace_.idle.empty()) return;
    const std::uint64_t track = child_track(row, static_cast<std::size_t>(trace_.slots));
    for (auto i = static_cast<std::size_t>(trace_.idle_begin[static_cast<std::size_t>(row)]);
         i < static_cast<std::size_t>(trace_.idle_begin[static_cast<std::size_t>(row) + 1]); ++i) {
      const IdleSpan& span = trace_.idle[i];
      Message event, body;
      body.number(field::kTimestamp, static_cast<std::uint64_t>(span.begin));
      event.number(field::kType, kBegin);
      event.number(field::kNameIid, 1 + static_cast<std::uint64_t>(span.cause));
      event.number(field::kTrack, track);
      body.message(field::kTrackEvent, event);
      packet(body);
      end(track, span.end);
    }
  }

  void inside(std::int32_t row) {
    const std::uint64_t track = child_track(row, static_cast<std::size_t>(trace_.slots) + 1);
    for (auto i = trace_.row_begin[static_cast<std::size_t>(row)];
         i < trace_.row_begin[static_cast<std::size_t>(row) + 1]; ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      for (const InsideCollective& one : collectives_inside(trace_, op)) {
        Message event, body;
        body.number(field::kTimestamp, static_cast<std::uint64_t>(one.begin_ns));
        annotate(event, kOp, op.value);
        annotate(event, kBytes, one.bytes);
        event.number(field::kType, kBegin);
        event.text(field::kEventName, one.name);
        event.number(field::kTrack, track);
        body.message(field::kTrackEvent, event);
        packet(body);
        end(track, one.end_ns);
      }
    }
  }

  void sample(std::uint64_t track, std::int64_t time, std::int64_t value) {
    Message event, body;
    body.number(field::kTimestamp, static_cast<std::uint64_t>(time));
    event.number(field::kType, kCounterSample);
    event.number(field::kTrack, track);
    event.number(field::kCounterValue, static_cast<std::uint64_t>(value));
    body.message(field::kTrackEvent, event);
    packet(body);
  }

  void memory(std::int32_t row) {
    if (trace_.memory_time.empty()) return;
    const std::size_t parts = trace_.memory_parts.size();
    for (std::size_t part = 0; part < parts; ++part) {
      for (auto i = static_cast<std::size_t>(trace_.memory_begin[static_cast<std::size_t>(row)]);
           i < static_cast<std::size_t>(trace_.memory_begin[static_cast<std::size_t>(row) + 1]);
           ++i) {
        sample(child_track(row, static_cast<std::size_t>(trace_.slots) + 1 + part),
               trace_.memory_time[i], trace_.memory_bytes[i * parts + part]);
      }
    }
  }

  void load(std::size_t link) {
    for (auto i = static_cast<std::size_t>(trace_.link_begin[link]);
         i < static_cast<std::size_t>(trace_.link_begin[link + 1]); ++i) {
      sample(link_track(link), trace_.link_samples[i].time, trace_.link_samples[i].load_ppm);
    }
  }

  const Trace& trace_;
  FileWriter out_;
  bool inside_;
  bool first_ = true;
};

}  // namespace

Result<> export_perfetto(const Trace& trace, const std::string& path, bool inside) {
  return PerfettoWriter(trace, path, inside).write();
}

}  // namespace rehearse::viz
