// SPDX-License-Identifier: Apache-2.0
// The traces that a window shows, with what is derived from them when it is first asked for.
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
#include "viz/analysis/ranks/heat.h"
#include "viz/analysis/ranks/waited.h"
#include "viz/analysis/retime.h"
#include "viz/analysis/two/lag.h"
#include "viz/picture/charts/waterfall.h"
#include "viz/picture/coloring.h"
#include "viz/picture/legend.h"
#include "viz/window/state/filter.h"

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
  // With a filter: of all that it asks for, the rest a class of its own.
  const Coloring& coloring(ColorBy by, const Filter& filter = {}) const {
    return colored(by, filter).coloring;
  }
  const TraceIndex& index(ColorBy by, const Filter& filter = {}) const {
    return *colored(by, filter).index;
  }
  void compare_with(std::vector<std::int64_t> elsewhere);  // per op, as in Coloring
  const Causality& causality() const;
  const CriticalPath& critical() const;
  const std::vector<Arrow>& critical_arrows() const;
  // None where the trace is too long to be timed anew while one waits, or its waits are circular.
  std::optional<WhatIf> what_if(OpId op) const;
  const std::vector<KindStatistics>& kinds(const Filter& filter = {}) const;  // of ops asked for
  const MemoryCurve& memory(std::int32_t row) const;
  const LinkCurve& link(std::int32_t link) const;
  const std::vector<ArenaBlock>& arena(std::int32_t row) const;
  // Ops that a filter asks for, 1 each; empty: all.
  const std::vector<std::uint8_t>& kept(const Filter& filter) const;
  // Of those the ones whose name holds a text, in order of the trace: at most kMostHits.
  static constexpr std::size_t kMostHits = 10'000;
  const std::vector<OpId>& hits(const std::string& text, const Filter& filter = {}) const;
  const std::vector<std::int32_t>& loaded_links() const;  // at some time of the step
  const std::vector<LegendEntry>& memory_parts() const;   // that are used
  const HeatSource& heat() const;
  const RankClasses& classes() const;
  const std::vector<WaitedFor>& waited_for() const;
  const std::vector<RankWait>& rank_waits() const;
  const std::vector<double>& over_median() const;  // per row; empty: no row has its like

 private:
  std::unique_ptr<Trace> trace_;  // stays where it is: the index points into it
  std::unique_ptr<TraceIndex> index_;
  struct Colored {
    Coloring coloring;
    std::unique_ptr<TraceIndex> own;  // null: by kind
    const TraceIndex* index = nullptr;
  };
  const Colored& colored(ColorBy by, const Filter& filter) const;
  mutable std::array<std::unique_ptr<Colored>, kNumColorings> colored_;
  // Of the filter that was asked for last.
  struct Filtered {
    Filter filter;
    std::vector<std::uint8_t> kept;
    std::array<std::unique_ptr<Colored>, kNumColorings> colored;
    std::unique_ptr<std::vector<KindStatistics>> kinds;
  };
  mutable Filtered filtered_;
  std::vector<std::int64_t> elsewhere_;
  mutable std::unique_ptr<Causality> causality_;
  mutable std::unique_ptr<CriticalPath> critical_;
  mutable std::unique_ptr<std::vector<Arrow>> critical_arrows_;
  mutable std::unique_ptr<Retiming> retiming_;
  mutable std::pair<OpId, WhatIf> what_if_;  // the last that was asked for
  mutable std::unique_ptr<std::vector<KindStatistics>> kinds_;
  mutable std::vector<std::unique_ptr<MemoryCurve>> memory_;              // per row
  mutable std::vector<std::unique_ptr<LinkCurve>> links_;                 // per link
  mutable std::vector<std::unique_ptr<std::vector<ArenaBlock>>> arenas_;  // per row
  struct Hits {
    std::string text;
    Filter filter;
    std::vector<OpId> ops;
  };
  mutable Hits hits_;  // of the last text
  mutable std::unique_ptr<std::vector<std::int32_t>> loaded_links_;
  mutable std::unique_ptr<std::vector<LegendEntry>> memory_parts_;
  mutable std::unique_ptr<HeatSource> heat_;
  mutable std::unique_ptr<RankClasses> classes_;
  mutable std::unique_ptr<std::vector<WaitedFor>> waited_for_;
  mutable std::unique_ptr<std::vector<RankWait>> rank_waits_;
  mutable std::unique_ptr<std::vector<double>> over_median_;
};

struct OpRef {
  std::int32_t document = 0;
  OpId op{};
  explicit operator bool() const { return static_cast<bool>(op); }
  bool operator==(const OpRef&) const = default;
};

// What of two traces begins together.
struct Alignment {
  Align how = Align::Step;
  OpId op;  // Align::Op: of the second trace, with a counterpart in the first
  bool operator==(const Alignment&) const = default;
};

// One trace, or two on one time axis.
class Session {
 public:
  // REQUIRES: 1 or 2. `waterfall`: the causes from the first step to the second, where they are
  // known.
  explicit Session(std::vector<Document> documents, std::optional<Waterfall> waterfall = {});
  const std::vector<Document>& documents() const { return documents_; }
  const Document& at(std::int32_t document) const {
    return documents_[static_cast<std::size_t>(document)];
  }
  bool compares() const { return documents_.size() == 2; }
  // Derives what a mouse over a bubble asks for, so that no frame has to: for the time in which a
  // person looks at the first picture.
  void prepare() const;
  // Both are of one schedule: ops correspond by id.
  bool same_schedule() const { return same_schedule_; }
  // Ops of one correspond to ops of the other: by id, or, where one comes from a profiler, by what
  // they do (row, kind, stage, micro-batch). Their rows then stand pair by pair.
  bool corresponds() const { return same_schedule_ || !counterparts_.empty(); }
  OpId counterpart(OpRef op) const;  // in the other trace; none: it has none
  std::int64_t longest_step() const { return longest_step_; }
  // What tells a trace from the other one: predicted or measured, else its schedule. REQUIRES:
  // there are two.
  std::string name_of(std::int32_t document) const;
  const std::optional<Waterfall>& waterfall() const { return waterfall_; }

  // The time axis begins with the first trace's step: of a trace's own times that which is 0 there.
  std::int64_t origin(std::int32_t document, const Alignment& alignment) const;
  // From where to where on the axis there is a step [ns].
  std::pair<double, double> extent(const Alignment& alignment) const;
  // How far the second is behind on a row, and on any; where steps begin together. REQUIRES:
  // corresponds().
  const LagCurve& lag(std::int32_t row) const;
  const LagCurve::Range& greatest_lag() const;

  // Where several ranks do the same and each has a row, their class is known by its first row:
  // a number among the rows of all documents; rows that stand pair by pair have one.
  std::size_t class_number(std::int32_t document, std::int32_t row) const;
  // By it rows are named and chosen: of two traces that stand pair by pair the measured one's.
  const RankClasses& classes(std::int32_t document) const;
  std::size_t num_rows() const;  // of all documents
  // Ends of warm-up and of the steady state, since the step's begin: by first backward and last
  // forward over the rows of the first trace.
  std::int64_t warmup_end() const { return warmup_end_; }
  std::int64_t cooldown_begin() const { return cooldown_begin_; }

 private:
  std::vector<Document> documents_;
  bool same_schedule_ = false;
  std::vector<std::vector<OpId>> counterparts_;  // per document and op
  std::optional<Waterfall> waterfall_;
  const std::vector<OpId>& same() const;                 // per op of the second
  mutable std::vector<OpId> same_;                       // where the schedule is one
  mutable std::vector<std::unique_ptr<LagCurve>> lags_;  // per row
  mutable std::optional<LagCurve::Range> greatest_lag_;
  std::int64_t longest_step_ = 1, warmup_end_ = 0, cooldown_begin_ = 0;
};

}  // namespace rehearse::viz
