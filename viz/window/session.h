// SPDX-License-Identifier: Apache-2.0
// What a viewer's window shows, as a value, and how events change it: reduce() is a pure function,
// so a recorded list of events replays, without a window too. No drawing (view_scene.h), no GLFW.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viz/analysis/analysis.h"
#include "viz/analysis/arena_map.h"
#include "viz/analysis/arrows.h"
#include "viz/analysis/bubble.h"
#include "viz/analysis/causality.h"
#include "viz/analysis/curves.h"
#include "viz/analysis/retime.h"
#include "viz/picture/coloring.h"
#include "viz/picture/layout.h"
#include "viz/picture/legend.h"

namespace rehearse::viz {

// The step's length [ns] if an op took a fifth less of its time.
struct WhatIf {
  static constexpr double kFactor = 0.8;
  std::int64_t alone = 0;  // that op, on every rank that its row stands for
  std::int64_t alike = 0;  // all of its kind and stage
};

// One open trace and what is derived from it when first asked for.
class Document {
 public:
  explicit Document(Trace trace);  // fills in causes of idle time where the trace has none
  const Trace& trace() const { return *trace_; }
  const TraceIndex& index() const { return *index_; }
  // What colours stand for, and the index by their classes. Difference: as `compare_with` said.
  const Coloring& coloring(ColorBy by) const { return colored(by).coloring; }
  const TraceIndex& index(ColorBy by) const { return *colored(by).index; }
  void compare_with(std::vector<std::int64_t> elsewhere);  // per op, as in Coloring
  const Causality& causality() const;
  const CriticalPath& critical() const;
  const std::vector<Arrow>& critical_arrows() const;
  // None where the trace is too long to be timed anew while one waits, or its waits are circular.
  std::optional<WhatIf> what_if(OpId op) const;
  const std::vector<KindStatistics>& kinds() const;
  const MemoryCurve& memory(std::int32_t row) const;
  const LinkCurve& link(std::int32_t link) const;
  const std::vector<ArenaBlock>& arena(std::int32_t row) const;
  // Ops whose name holds a text, in order of the trace: at most kMostHits.
  static constexpr std::size_t kMostHits = 10'000;
  const std::vector<OpId>& hits(const std::string& text) const;
  const std::vector<std::int32_t>& loaded_links() const;  // at some time of the step
  const std::vector<LegendEntry>& memory_parts() const;   // that are used

 private:
  std::unique_ptr<Trace> trace_;  // stays where it is: the index points into it
  std::unique_ptr<TraceIndex> index_;
  struct Colored {
    Coloring coloring;
    std::unique_ptr<TraceIndex> own;  // null: by kind
    const TraceIndex* index = nullptr;
  };
  const Colored& colored(ColorBy by) const;
  mutable std::array<std::unique_ptr<Colored>, kNumColorings> colored_;
  std::vector<std::int64_t> elsewhere_;
  mutable std::unique_ptr<Causality> causality_;
  mutable std::unique_ptr<CriticalPath> critical_;
  mutable std::unique_ptr<std::vector<Arrow>> critical_arrows_;
  mutable std::unique_ptr<Retiming> retiming_;
  mutable std::pair<OpId, WhatIf> what_if_;  // the last that was asked for
  mutable std::unique_ptr<std::vector<KindStatistics>> kinds_;
  mutable std::vector<std::unique_ptr<MemoryCurve>> memory_;  // per row
  mutable std::vector<std::unique_ptr<LinkCurve>> links_;     // per link
  mutable std::vector<std::unique_ptr<std::vector<ArenaBlock>>> arenas_;  // per row
  mutable std::pair<std::string, std::vector<OpId>> hits_;                // of the last text
  mutable std::unique_ptr<std::vector<std::int32_t>> loaded_links_;
  mutable std::unique_ptr<std::vector<LegendEntry>> memory_parts_;
};

struct OpRef {
  std::int32_t document = 0;
  OpId op{};
  explicit operator bool() const { return static_cast<bool>(op); }
  bool operator==(const OpRef&) const = default;
};

// One trace, or two on one time axis; their steps begin together.
class Session {
 public:
  explicit Session(std::vector<Document> documents);  // REQUIRES: 1 or 2
  const std::vector<Document>& documents() const { return documents_; }
  const Document& at(std::int32_t document) const {
    return documents_[static_cast<std::size_t>(document)];
  }
  bool compares() const { return documents_.size() == 2; }
  // Both are of one schedule: ops correspond by id.
  bool same_schedule() const { return same_schedule_; }
  // Ops of one correspond to ops of the other: by id, or, where one comes from a profiler, by what
  // they do (row, kind, stage, micro-batch). Their rows then stand pair by pair.
  bool corresponds() const { return same_schedule_ || !counterparts_.empty(); }
  OpId counterpart(OpRef op) const;  // in the other trace; none: it has none
  std::int64_t longest_step() const { return longest_step_; }
  // Ends of warm-up and of the steady state, since the step's begin: by first backward and last
  // forward over the rows of the first trace.
  std::int64_t warmup_end() const { return warmup_end_; }
  std::int64_t cooldown_begin() const { return cooldown_begin_; }

 private:
  std::vector<Document> documents_;
  bool same_schedule_ = false;
  std::vector<std::vector<OpId>> counterparts_;  // per document and op
  std::int64_t longest_step_ = 1, warmup_end_ = 0, cooldown_begin_ = 0;
};

enum class Key : std::uint8_t {
  None,
  A,
  B,
  C,
  D,
  E,
  F,
  G,
  H,
  K,
  L,
  M,
  N,
  O,
  Q,
  R,
  S,
  T,
  U,
  V,
  W,
  X,
  Plus,
  Minus,
  Zero,
  Slash,
  Comma,
  Period,
  BracketLeft,
  BracketRight,
  Space,
  Escape,
  Enter,
  Backspace,
  Home,
  Left,
  Right,
  Up,
  Down,
  Question,
  One,
  Two,
  Three,
};

struct Event {
  enum class Type : std::uint8_t {
    Key,
    Text,
    Move,
    Press,
    Release,
    DoubleClick,
    Wheel,
    Resize,
    Tick
  };
  Type type{};
  Key key{};
  bool shift = false, control = false;
  double x = 0, y = 0;  // of the mouse [px]; Wheel: steps, up is positive; Resize: the size [px]
  double scale = 0;     // Resize: pixels per unit of this screen; 0: as before
  std::int32_t button = 0;  // 0 left, 1 right, 2 middle
  double seconds = 0;       // Tick: since the last one
  std::string text;         // Text: typed, UTF-8
};

// A moment of a row's memory, which its box tells of.
struct MemoryAt {
  std::int32_t document = 0, row = 0;
  std::int64_t since = 0;  // the step's begin [ns]
  bool operator==(const MemoryAt&) const = default;
};

// What was in view, to go back to.
struct PastView {
  double begin = 0, end = 1, scroll = 0;
  bool operator==(const PastView&) const = default;
};

enum class Drag : std::uint8_t { None, Pan, Range, Scrub, Minimap };

// Times are ns since the step's begin; doubles, so that zooming in and out again comes back.
// Places and sizes are in units of `scale` pixels.
struct ViewState {
  std::int32_t width = 1440, height = 900;
  std::int32_t pixel_width = 1440, pixel_height = 900;
  double content_scale = 1, text_scale = 1;  // of the screen; as a person chose it
  double scale() const { return content_scale * text_scale; }
  double begin = 0, end = 1;
  double scroll = 0;  // [px]
  OpRef selected;
  double mouse_x = -1, mouse_y = -1;
  bool dark = true, wheel_zooms = false;
  bool causes = true, critical = false, memory = true, links = false, streams = true;
  ColorBy color_by = ColorBy::Kinds;  // Difference: of the second trace to the first
  bool statistics = false, inside = false, experts = false, help = false;
  std::vector<std::uint8_t> folded;  // per row of all documents: only its compute lane is shown
  bool searching = false;
  std::string search;
  std::optional<std::pair<double, double>> range;  // measured
  bool playing = false;
  std::optional<double> play;  // the time under the scrubber
  Drag drag = Drag::None;
  double drag_x = 0, drag_y = 0, drag_begin = 0, drag_scroll = 0;
  bool moved = false;         // since the press
  bool wants_export = false;  // the window writes a picture, clears it and says where
  bool wants_quit = false;
  std::string notice;  // one line for the person, until the next key or click
  std::optional<MemoryAt> memory_at;
  std::vector<PastView> past, future;          // what undo and redo go to
  std::int32_t last_change = -1;               // what changed the view last: one gesture is one step
  bool operator==(const ViewState&) const = default;
};

// Width and height in pixels; `scale` of them per unit.
ViewState initial_state(const Session& session, std::int32_t width, std::int32_t height,
                        double scale = 1);
ViewState reduce(const Session& session, ViewState state, const Event& event);

}  // namespace rehearse::viz
