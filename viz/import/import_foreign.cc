// SPDX-License-Identifier: Apache-2.0
// Chrome JSON of other tools -> a trace: who is a row, who a lane, what nests beside what.
#include <algorithm>
#include <limits>

#include "viz/import/import_events.h"

namespace rehearse::viz {
namespace {

using Category = ForeignEvent::Category;

// B and E of one thread, matched like brackets, become X.
std::vector<ForeignEvent> paired(std::vector<ForeignEvent>& events) {
  std::vector<ForeignEvent> out;
  out.reserve(events.size());
  std::unordered_map<std::int64_t, std::vector<ForeignEvent>> open;  // by process and thread
  for (const ForeignEvent& e : events) {
    if (e.phase == 'X') {
      out.push_back(e);
      continue;
    }
    auto& stack =
        open[static_cast<std::int64_t>(e.process) << 32 | static_cast<std::uint32_t>(e.thread)];
    if (e.phase == 'B') {
      stack.push_back(e);
    } else if (!stack.empty()) {
      ForeignEvent whole = stack.back();
      stack.pop_back();
      whole.duration = std::max<std::int64_t>(0, e.start - whole.start);
      out.push_back(whole);
    }
  }
  return out;
}

// Numbers by value, then texts by alphabet.
struct ByIdentifier {
  const ForeignEvents& in;
  bool operator()(std::int32_t a, std::int32_t b) const {
    const std::int32_t x = in.number(a), y = in.number(b);
    if ((x >= 0) != (y >= 0)) return x >= 0;
    if (x != y) return x < y;
    return in.texts.view(a) < in.texts.view(b);
  }
};

struct Thread {
  std::int32_t id = -1;   // Texts
  bool pipeline = false;  // the schedule's ops, not a stream
  std::vector<const ForeignEvent*> events;
  std::int64_t work = 0;  // time in kernels that are no collectives
  std::int32_t depth = 0, first_slot = 0;
};

struct Process {
  std::int32_t id = -1;
  std::vector<Thread> threads;
};

std::vector<Process> processes_of(const ForeignEvents& in,
                                  const std::vector<ForeignEvent>& events) {
  std::vector<Process> processes;
  std::unordered_map<std::int64_t, std::pair<std::size_t, std::size_t>> known;
  std::unordered_map<std::int32_t, std::size_t> known_process;
  for (const ForeignEvent& e : events) {
    const bool pipeline = e.category == Category::Range;
    const std::int32_t id = pipeline ? -2 : e.thread;
    const auto key = static_cast<std::int64_t>(e.process) << 32 | static_cast<std::uint32_t>(id);
    auto at = known.find(key);
    if (at == known.end()) {
      const auto [p, fresh] = known_process.try_emplace(e.process, processes.size());
      if (fresh) processes.push_back({.id = e.process});
      auto& threads = processes[p->second].threads;
      at = known.emplace(key, std::pair{p->second, threads.size()}).first;
      threads.push_back({.id = id, .pipeline = pipeline});
    }
    Thread& thread = processes[at->second.first].threads[at->second.second];
    thread.events.push_back(&e);
    if (e.category == Category::Kernel && !holds(in.texts.view(e.name), "nccl"))
      thread.work += e.duration;
  }
  const ByIdentifier less{in};
  std::ranges::sort(processes,
                    [&](const Process& a, const Process& b) { return less(a.id, b.id); });
  for (Process& process : processes) {
    std::ranges::sort(process.threads, [&](const Thread& a, const Thread& b) {
      if (a.pipeline != b.pipeline) return a.pipeline;
      return a.work != b.work ? a.work > b.work : less(a.id, b.id);  // the computing stream first
    });
  }
  return processes;
}

// The shallowest lane that is free, for each event of a thread, in order of time.
std::vector<std::int32_t> depths(Thread& thread) {
  std::ranges::stable_sort(thread.events, [](const ForeignEvent* a, const ForeignEvent* b) {
    return a->start != b->start ? a->start < b->start : a->duration > b->duration;
  });
  std::vector<std::int64_t> free;
  std::vector<std::int32_t> out;
  for (const ForeignEvent* e : thread.events) {
    std::size_t d = 0;
    while (d < free.size() && free[d] > e->start) ++d;
    if (d == free.size()) free.push_back(0);
    free[d] = e->start + e->duration;
    out.push_back(static_cast<std::int32_t>(d));
  }
  thread.depth = static_cast<std::int32_t>(free.size());
  return out;
}

std::string lane_title(const ForeignEvents& in, const Process& process, const Thread& thread,
                       bool device) {
  if (thread.pipeline) return "pipeline";
  const auto named = in.thread_names.find(static_cast<std::int64_t>(process.id) << 32 |
                                          static_cast<std::uint32_t>(thread.id));
  if (named != in.thread_names.end()) return named->second;
  return (device ? "stream " : "thread ") + std::string(in.texts.view(thread.id));
}

// What the ops that differ only by time share.
class ForeignClasses {
 public:
  explicit ForeignClasses(ForeignEvents& in) : in_(in), text_ids_(in.texts.size(), -1) {}

  // The event's class, and its micro-batch (-1: none).
  std::pair<std::int32_t, std::int32_t> find(const ForeignEvent& e, std::int32_t slot) {
    const std::string_view name = in_.texts.view(e.name);
    if (e.category == Category::Range) {
      const PipelineOp op = *pipeline_op(name);
      const Key key{slot, op.stage, -1, op.kind};
      return {id_of(key, {.kind = op.kind, .stage = {op.stage}}), op.microbatch};
    }
    const Collective said =
        e.id >= 0 ? in_.collectives[static_cast<std::size_t>(e.id)] : Collective{};
    const OpKind kind = kind_of_event(e, name, in_.texts.view(said.name));
    return {id_of({slot, e.name, e.id, kind}, {.kind = kind,
                                               .stream = traits(kind).stream,
                                               .group = text_of(said.group),
                                               .name = text_of(e.name),
                                               .bytes = said.bytes}),
            -1};
  }

  std::vector<TraceClass> all;

 private:
  struct Key {
    std::int32_t slot, name, collective;
    OpKind kind;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const {
      std::size_t mixed = 0;
      for (const std::int32_t part :
           {key.slot, key.name, key.collective, static_cast<std::int32_t>(key.kind)}) {
        mixed = (mixed ^ static_cast<std::uint32_t>(part)) * 0x9E3779B97F4A7C15u;
      }
      return mixed ^ mixed >> 32;
    }
  };

  std::int32_t id_of(const Key& key, TraceClass made) {
    const auto [at, fresh] = ids_.try_emplace(key, static_cast<std::int32_t>(all.size()));
    if (fresh) {
      made.slot = static_cast<std::int16_t>(key.slot);
      all.push_back(made);
    }
    return at->second;
  }
  TraceString text_of(std::int32_t text) {
    if (text < 0) return -1;
    TraceString& known = text_ids_[static_cast<std::size_t>(text)];
    if (known < 0) known = in_.text(std::string(in_.texts.view(text)));
    return known;
  }

  ForeignEvents& in_;
  std::unordered_map<Key, std::int32_t, Hash> ids_;
  std::vector<TraceString> text_ids_;
};

}  // namespace

// torch/profiler/profiler.py marks every step, on the host and on the device.
std::int32_t profiled_steps(const ForeignEvents& in) {
  std::int32_t steps = 0;
  for (std::size_t i = 0; i < in.texts.size(); ++i) {
    const std::string_view name = in.texts.view(static_cast<std::int32_t>(i));
    steps += name.starts_with("ProfilerStep#") ? 1 : 0;
  }
  return steps;
}

Result<Trace> build_foreign(ForeignEvents& in, const std::string& name) {
  std::vector<ForeignEvent> events = paired(in.events);
  const bool device = std::ranges::any_of(
      events, [](const ForeignEvent& e) { return e.category == Category::Kernel; });
  if (device) {
    std::erase_if(events, [&in](const ForeignEvent& e) {
      if (e.category == Category::Range) return !pipeline_op(in.texts.view(e.name));
      return e.category != Category::Kernel && e.category != Category::Copy;
    });
  }
  std::erase_if(events, [](const ForeignEvent& e) { return e.duration < 0; });
  if (events.empty()) return Error{"no events that take time"};
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(),
               end = std::numeric_limits<std::int64_t>::min();
  for (const ForeignEvent& e : events) {
    begin = std::min(begin, e.start);
    if (e.start > 0 && e.duration > std::numeric_limits<std::int64_t>::max() - e.start)
      return Error{"an event's end is out of range"};
    end = std::max(end, e.start + e.duration);
  }
  // Both are below 2^62 by the scanner; a longer step than a trace may have is no step.
  if (begin < 0 && end > std::numeric_limits<std::int64_t>::max() + begin)
    return Error{"the times are out of range"};

  in.begin_ns = begin;
  Trace trace;
  trace.label = TraceLabel::Measured;
  trace.profiled_steps = profiled_steps(in);
  trace.title = name.substr(name.find_last_of('/') + 1);
  trace.end = {end - begin};

  std::vector<Process> processes = processes_of(in, events);
  std::vector<std::vector<std::vector<std::int32_t>>> depth(processes.size());
  for (std::size_t p = 0; p < processes.size(); ++p) {
    std::int32_t slots = 0;
    for (Thread& thread : processes[p].threads) {
      depth[p].push_back(depths(thread));
      thread.first_slot = slots;
      slots += thread.depth;
    }
    trace.slots = std::max(trace.slots, slots);
  }
  if (trace.slots > 32767) return Error{"more than 32767 lanes in one process"};
  if (static_cast<std::int64_t>(trace.slots) * static_cast<std::int64_t>(processes.size()) >
      (1 << 24)) {
    return Error{"too many lanes"};
  }

  struct Placed {
    std::int64_t start, end;
    std::int32_t slot;
    const ForeignEvent* event;
  };
  std::vector<TraceRow> rows;
  std::vector<TraceLane> lanes(processes.size() * static_cast<std::size_t>(trace.slots));
  ForeignClasses classes(in);
  std::vector<std::int64_t> row_begin{0}, starts, ends;
  std::vector<std::int32_t> op_class, microbatch;
  for (std::size_t p = 0; p < processes.size(); ++p) {
    Process& process = processes[p];
    std::vector<Placed> placed;
    for (std::size_t t = 0; t < process.threads.size(); ++t) {
      Thread& thread = process.threads[t];
      const std::string title = lane_title(in, process, thread, device);
      for (std::int32_t d = 0; d < thread.depth; ++d) {
        const std::size_t lane = p * static_cast<std::size_t>(trace.slots) +
                                 static_cast<std::size_t>(thread.first_slot + d);
        lanes[lane].name = in.text(title + (d == 0 ? "" : " +" + std::to_string(d)));
      }
      for (std::size_t i = 0; i < thread.events.size(); ++i) {
        const ForeignEvent& e = *thread.events[i];
        placed.push_back({e.start - begin, e.start + e.duration - begin,
                          thread.first_slot + depth[p][t][i], &e});
      }
    }
    std::ranges::stable_sort(placed, [](const Placed& a, const Placed& b) {
      return a.start != b.start ? a.start < b.start : a.slot < b.slot;
    });
    for (const Placed& op : placed) {
      const auto [id, of] = classes.find(*op.event, op.slot);
      trace.microbatches = std::max(trace.microbatches, of + 1);
      op_class.push_back(id);
      microbatch.push_back(of);
      starts.push_back(op.start);
      ends.push_back(op.end);
    }
    const auto named = in.process_names.find(process.id);
    TraceRow row{.position = {static_cast<std::int32_t>(p)}};
    std::string title =
        named != in.process_names.end() ? named->second : std::string(in.texts.view(process.id));
    if (device && in.number(process.id) >= 0)
      title = "device " + std::string(in.texts.view(process.id));
    if (in.rank >= 0 && processes.size() == 1) {
      row.first_rank = {in.rank};
      title = "rank " + std::to_string(in.rank);
    }
    row.name = in.text(title);
    rows.push_back(row);
    row_begin.push_back(static_cast<std::int64_t>(starts.size()));
  }
  const std::size_t n = starts.size();
  trace.strings = std::move(in.trace.strings);
  trace.rows = std::move(rows);
  trace.lanes = std::move(lanes);
  trace.classes = std::move(classes.all);
  trace.row_begin = std::move(row_begin);
  trace.start_ns = std::move(starts);
  trace.end_ns = std::move(ends);
  trace.op_class = std::move(op_class);
  trace.microbatch = std::move(microbatch);
  trace.partner = std::vector<std::int32_t>(n, -1);
  return trace;
}

}  // namespace rehearse::viz
