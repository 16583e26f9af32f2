// SPDX-License-Identifier: Apache-2.0
// Between the reader of foreign files and the trace: events as they came, and who builds what from
// them. Internal to viz/import.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schedules/trace/trace.h"

namespace rehearse::viz {

inline bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Texts by number, each once, in order of first appearance. Views into the file's own text.
class Texts {
 public:
  std::int32_t id(std::string_view text) {
    if (last_ >= 0 && view(last_) == text) return last_;
    const auto [at, fresh] = ids_.try_emplace(text, static_cast<std::int32_t>(texts_.size()));
    if (fresh) texts_.push_back(text);
    return last_ = at->second;
  }
  std::string_view view(std::int32_t id) const {
    return id < 0 ? std::string_view{} : texts_[static_cast<std::size_t>(id)];
  }
  std::size_t size() const { return texts_.size(); }

 private:
  std::unordered_map<std::string_view, std::int32_t> ids_;  // looked up, never walked
  std::vector<std::string_view> texts_;
  std::int32_t last_ = -1;
};

struct ForeignEvent {
  // Range: of a user, on a device; Annotation: the same on the host; Operator: torch's, on the host
  enum class Category : std::uint8_t {
    Other,
    Kernel,
    Copy,
    Range,
    Bubble,
    Annotation,
    Operator,
    Inside
  };
  std::int64_t start = 0, duration = 0;               // [ns]
  std::int32_t name = -1, process = -1, thread = -1;  // Texts
  std::int32_t id = 0;  // index into ForeignEvents::collectives, or a link; -1: none
  std::int32_t peer =
      -1;  // of a transfer's kernel, or operator of c10d: the other end; -1: not said
  std::int32_t group = -1;  // of a collective's kernel: its group's name, the job's own; Texts
  Category category = Category::Other;
  char phase = 'X';
};

// What the profiler says of a collective's kernel. Texts; bytes of the whole payload, 0: not said.
struct Collective {
  std::int32_t name = -1, group = -1;
  std::int64_t bytes = 0;
};

// An op of a file that rehearse wrote.
struct OurOp {
  std::int32_t id = -1, row = -1;
  std::int64_t start = 0, end = 0, expected_start = -1, communicating = -1;
  std::int32_t microbatch = -1, partner = -1, num_waits = 0;
  std::int32_t cost_level = -1;
  TraceClass op_class;
};

struct ForeignEvents {
  Texts texts;
  std::vector<ForeignEvent> events;
  std::vector<Collective> collectives;
  std::unordered_map<std::int32_t, std::string> process_names;  // by Texts of pid
  std::unordered_map<std::int64_t, std::string> thread_names;   // by pid << 32 | tid
  std::int32_t rank = -1;                                       // distributedInfo
  std::int64_t base_ns = 0;   // what all times count from, since 1970
  std::int64_t begin_ns = 0;  // of the first event that counts (build_foreign)

  // Files of ours.
  bool ours = false, has_waits = false, has_idle = false;
  Trace trace;  // what "rehearse" says; columns are filled later
  std::vector<TraceRow> rows;
  std::vector<std::int32_t> row_class;
  std::vector<TraceLane> lanes;
  std::vector<TraceLink> links;
  std::vector<OurOp> ops;
  std::vector<std::int32_t> waits;                            // of the ops, one after another
  std::vector<std::pair<std::int32_t, IdleSpan>> idle;        // (row, span)
  std::vector<std::pair<std::int32_t, std::int64_t>> memory;  // (row, time)
  std::vector<std::int64_t> memory_bytes;
  std::vector<std::pair<std::int32_t, LinkSample>> loads;  // (link, sample)

  TraceString text(const std::string& what);     // into trace.strings
  std::int32_t number(std::int32_t text) const;  // a text that is a number; -1: it is none
  void name(const ForeignEvent& metadata, const std::string& name);

 private:
  std::unordered_map<std::string, TraceString> string_ids_;
};

// What a device event does, as far as its name and its collective's name say so.
OpKind kind_of_event(const ForeignEvent& e, std::string_view name, std::string_view collective);
std::int64_t element_bytes(std::string_view dtype);  // torch's names; 0: unknown
// "PP:2F3": a forward of stage 2 for micro-batch 3. None: not one of F, B, I, W.
struct PipelineOp {
  OpKind kind{};
  std::int32_t stage = -1, microbatch = -1;
};
std::optional<PipelineOp> pipeline_op(std::string_view name);

// Everything that a file says. REQUIRES: `text` outlives the events.
Result<> read_chrome_events(std::string_view text, const std::string& name, ForeignEvents& events);
Result<Trace> build_ours(ForeignEvents& events);
Result<Trace> build_foreign(ForeignEvents& events, const std::string& name);

}  // namespace rehearse::viz
