// Chrome JSON of other tools -> a trace: who is a row, who a lane, what nests beside what.
#include <algorithm>
#include <limits>

#include "viz/import_events.h"

namespace rehearse::viz {
namespace {

using Category = ForeignEvent::Category;

bool holds(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// What a device event does, as far as its name says so.
OpKind kind_of_event(const ForeignEvent& e, std::string_view name) {
  if (e.category == Category::Copy) {
    if (holds(name, "HtoD")) return OpKind::Fetch;
    if (holds(name, "DtoH")) return OpKind::Offload;
    return OpKind::Add;
  }
  if (e.category != Category::Kernel || !holds(name, "nccl")) return OpKind::Add;
  if (holds(name, "ReduceScatter")) return OpKind::ReduceScatter;
  if (holds(name, "AllReduce")) return OpKind::AllReduce;
  if (holds(name, "AllGather")) return OpKind::AllGather;
  if (holds(name, "Broadcast")) return OpKind::Broadcast;
  if (holds(name, "SendRecv")) return OpKind::Send;
  if (holds(name, "Reduce")) return OpKind::Reduce;
  return OpKind::Add;
}

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
  std::int32_t id = -1;  // Texts
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
    const auto key =
        static_cast<std::int64_t>(e.process) << 32 | static_cast<std::uint32_t>(e.thread);
    auto at = known.find(key);
    if (at == known.end()) {
      const auto [p, fresh] = known_process.try_emplace(e.process, processes.size());
      if (fresh) processes.push_back({.id = e.process});
      auto& threads = processes[p->second].threads;
      at = known.emplace(key, std::pair{p->second, threads.size()}).first;
      threads.push_back({.id = e.thread});
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

}  // namespace

Result<Trace> build_foreign(ForeignEvents& in, const std::string& name) {
  std::vector<ForeignEvent> events = paired(in.events);
  const bool device = std::ranges::any_of(
      events, [](const ForeignEvent& e) { return e.category == Category::Kernel; });
  if (device) {
    std::erase_if(events, [](const ForeignEvent& e) {
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

  Trace trace;
  trace.label = TraceLabel::Measured;
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
    std::int64_t start;
    std::int32_t slot, name;
    std::int64_t end;
    OpKind kind;
  };
  std::vector<TraceRow> rows;
  std::vector<TraceLane> lanes(processes.size() * static_cast<std::size_t>(trace.slots));
  std::vector<TraceClass> classes;
  std::vector<std::int64_t> row_begin{0}, starts, ends;
  std::vector<std::int32_t> op_class;
  std::unordered_map<std::int64_t, std::int32_t> class_ids;  // by slot and name
  std::vector<TraceString> name_ids(in.texts.size(), -1);
  for (std::size_t p = 0; p < processes.size(); ++p) {
    Process& process = processes[p];
    std::vector<Placed> placed;
    for (std::size_t t = 0; t < process.threads.size(); ++t) {
      Thread& thread = process.threads[t];
      const auto named = in.thread_names.find(static_cast<std::int64_t>(process.id) << 32 |
                                              static_cast<std::uint32_t>(thread.id));
      const std::string title =
          named != in.thread_names.end()
              ? named->second
              : (device ? "stream " : "thread ") + std::string(in.texts.view(thread.id));
      for (std::int32_t d = 0; d < thread.depth; ++d) {
        const std::size_t lane = p * static_cast<std::size_t>(trace.slots) +
                                 static_cast<std::size_t>(thread.first_slot + d);
        lanes[lane].name = in.text(title + (d == 0 ? "" : " +" + std::to_string(d)));
      }
      for (std::size_t i = 0; i < thread.events.size(); ++i) {
        const ForeignEvent& e = *thread.events[i];
        placed.push_back({e.start - begin, thread.first_slot + depth[p][t][i], e.name,
                          e.start + e.duration - begin, kind_of_event(e, in.texts.view(e.name))});
      }
    }
    std::ranges::stable_sort(placed, [](const Placed& a, const Placed& b) {
      return a.start != b.start ? a.start < b.start : a.slot < b.slot;
    });
    for (const Placed& op : placed) {
      const auto key = static_cast<std::int64_t>(op.slot) << 40 |
                       (static_cast<std::int64_t>(op.name) + 1) << 6 |
                       static_cast<std::int64_t>(op.kind);
      const auto [at, fresh] =
          class_ids.try_emplace(key, static_cast<std::int32_t>(classes.size()));
      if (fresh) {
        TraceString& text =
            op.name < 0 ? name_ids.emplace_back(-1) : name_ids[static_cast<std::size_t>(op.name)];
        if (text < 0) text = in.text(std::string(in.texts.view(op.name)));
        classes.push_back({.kind = op.kind,
                           .stream = traits(op.kind).stream,
                           .slot = static_cast<std::int16_t>(op.slot),
                           .name = text});
      }
      op_class.push_back(at->second);
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
  trace.classes = std::move(classes);
  trace.row_begin = std::move(row_begin);
  trace.start_ns = std::move(starts);
  trace.end_ns = std::move(ends);
  trace.op_class = std::move(op_class);
  trace.microbatch = std::vector<std::int32_t>(n, -1);
  trace.partner = std::vector<std::int32_t>(n, -1);
  return trace;
}

}  // namespace rehearse::viz
