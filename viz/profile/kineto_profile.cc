// SPDX-License-Identifier: Apache-2.0
// Names and arguments as in torch: torch/csrc/profiler/util.cpp (arguments of collectives),
// torch/csrc/distributed/c10d/Ops.cpp (c10d::send and its like), ProcessGroupGloo.cpp
// ("gloo:send").
#include <algorithm>
#include <limits>

#include "viz/import/import_events.h"
#include "viz/profile/read_profiles.h"

namespace rehearse::viz {
namespace {

using Category = ForeignEvent::Category;

class Kineto {
 public:
  Kineto(const ForeignEvents& in, const Families& families) : in_(in), families_(families) {}

  RankProfile profile() {
    RankProfile& profile = build_.profile();
    profile.rank = in_.rank;
    profile.families.resize(families_.size());
    family_.assign(in_.texts.size(), kNotAsked);
    for (const ForeignEvent& e : in_.events) {
      if (!lasts(e)) continue;
      profile.devices |= e.category == Category::Kernel;
      if (e.category == Category::Kernel) profile.kernels.add(e.duration);
      if (e.category == Category::Operator) profile.operators.add(e.duration);
      if (const int of = family(e); of >= 0) {
        profile.families[static_cast<std::size_t>(of)].add(e.duration);
      }
    }
    mark_steps();
    profile.devices ? device() : host();
    return build_.finish(std::clamp<std::int64_t>(in_.base_ns, 0, kMostTime));
  }

 private:
  static constexpr int kNotAsked = -2;
  static constexpr std::int64_t kMostTime = std::int64_t{1} << 61;  // [ns], so that sums fit

  static bool lasts(const ForeignEvent& e) {
    return e.phase == 'X' && e.duration >= 0 && e.start >= -kMostTime && e.start <= kMostTime &&
           e.duration <= kMostTime;
  }
  std::string_view name(const ForeignEvent& e) const { return in_.texts.view(e.name); }
  int family(const ForeignEvent& e) {
    const bool named = e.category == Category::Kernel || e.category == Category::Operator ||
                       e.category == Category::Annotation;
    if (e.name < 0 || !named) return -1;
    int& known = family_[static_cast<std::size_t>(e.name)];
    if (known == kNotAsked) known = families_.of(name(e));
    return known;
  }
  static bool has(std::string_view text, std::string_view part) {
    return text.find(part) != std::string_view::npos;
  }
  bool loads(const ForeignEvent& e) const {
    return e.category == Category::Annotation && name(e).starts_with("enumerate(DataLoader)");
  }

  void mark_steps() {
    const bool device = std::ranges::any_of(in_.events, [this](const ForeignEvent& e) {
      return lasts(e) && e.category == Category::Range && step_number(name(e)) >= 0;
    });
    for (const ForeignEvent& e : in_.events) {
      const bool range = e.category == Category::Annotation || e.category == Category::Range;
      if (!range || !lasts(e)) continue;
      const std::int64_t number = step_number(name(e));
      if (number < 0) continue;
      if (e.category == Category::Annotation) thread_ = e.thread;
      if (device == (e.category == Category::Range)) {
        build_.step(number, e.start, e.start + e.duration);
      }
    }
  }

  // Ends of transfers in the order of a pair of ranks; members of a collective.
  std::string transfer(std::int32_t peer, bool sends) const {
    if (peer < 0) return {};
    const auto from = std::to_string(sends ? in_.rank : peer);
    return "transfer " + from + ">" + std::to_string(sends ? peer : in_.rank);
  }

  void device() {
    for (const ForeignEvent& e : in_.events) {
      if (!lasts(e)) continue;
      const std::int64_t end = e.start + e.duration;
      if (loads(e)) build_.loads(e.start, end);
      if (e.category == Category::Copy) build_.exchanges({.begin = e.start, .end = end});
      if (e.category != Category::Kernel) continue;
      if (family(e) < 0) {
        build_.computes(e.start, end);
        continue;
      }
      const Collective said =
          e.id >= 0 ? in_.collectives[static_cast<std::size_t>(e.id)] : Collective{};
      const std::string_view op = in_.texts.view(said.name);
      Exchange one{.begin = e.start, .end = end};
      if (e.peer >= 0) {
        one.meeting = transfer(e.peer, has(op, "send"));
      } else if (op.empty()) {
        one.meeting = meeting_by_name(name(e));
        one.whole = false;
      } else if (!has(op, "send") && !has(op, "recv")) {
        // A group's name is the job's own; its description may be that of several groups.
        one.whole = e.group >= 0;
        one.meeting = std::string(in_.texts.view(one.whole ? e.group : said.group)) + " ";
        one.meeting += op;
      }
      build_.exchanges(std::move(one));
    }
  }

  // Of the thread that marks the steps: its operators compute, but those that communicate.
  void host() {
    std::vector<const ForeignEvent*> events;
    for (const ForeignEvent& e : in_.events) {
      const bool counts = e.category == Category::Operator || e.category == Category::Annotation;
      if (lasts(e) && counts && (thread_ < 0 || e.thread == thread_)) events.push_back(&e);
    }
    std::ranges::stable_sort(events, [](const ForeignEvent* a, const ForeignEvent* b) {
      return a->start != b->start ? a->start < b->start : a->duration > b->duration;
    });
    Exchange call;  // c10d's, in which the range of its exchange begins
    std::int64_t called = std::numeric_limits<std::int64_t>::min(), loaded = called;
    const auto close = [&] {
      if (called > call.begin) build_.exchanges(std::move(call));
      called = std::numeric_limits<std::int64_t>::min();
    };
    for (const ForeignEvent* e : events) {
      const std::int64_t end = e->start + e->duration;
      if (loads(*e)) {
        build_.loads(e->start, end);
        loaded = std::max(loaded, end);
      }
      if (family(*e) < 0) {
        if (e->category == Category::Operator && e->start >= loaded) build_.computes(e->start, end);
        continue;
      }
      const std::string_view op = name(*e);
      if (e->category == Category::Annotation && e->start < called) {
        call.end = std::max(call.end, end);
        continue;
      }
      close();
      call = {.begin = e->start, .end = end};
      called = end;
      if (e->category != Category::Operator) continue;
      const bool sends = has(op, "send");
      if (sends || has(op, "recv")) {
        call.meeting = transfer(e->peer, sends);
      } else {
        call.meeting = op;
        call.whole = false;
      }
    }
    close();
  }

  const ForeignEvents& in_;
  const Families& families_;
  ProfileBuilder build_;
  std::vector<int> family_;   // by text
  std::int32_t thread_ = -1;  // that marks the steps
};

}  // namespace

Result<RankProfile> kineto_profile(std::string_view text, const std::string& path,
                                   const Families& families) {
  ForeignEvents events;
  if (const Result<> read = read_chrome_events(text, path, events); !read) return read.error();
  if (events.ours) return Error{path + ": rehearse exported it: name the trace itself"};
  RankProfile profile = Kineto(events, families).profile();
  if (profile.moments.empty()) return Error{path + ": no events that take time"};
  if (profile.rank < 0) profile.rank = rank_in_name(path);
  profile.path = path;
  return profile;
}

}  // namespace rehearse::viz
