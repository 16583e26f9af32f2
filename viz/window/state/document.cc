// SPDX-License-Identifier: Apache-2.0
#include "viz/window/state/document.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "viz/analysis/ranks/stragglers.h"

namespace rehearse::viz {
namespace {

// What a compute op does, whoever timed it.
using OpSignature = std::tuple<std::int32_t, OpKind, std::int32_t, std::int32_t, std::int32_t>;

OpSignature signature_of(const Trace& trace, std::int32_t row, OpId op) {
  const TraceClass& c = trace.class_of(op);
  return {row, c.kind, c.stage.value, trace.microbatch[op.index()],
          c.segment_begin | c.segment_end << 16};
}
bool has_signature(const Trace& trace, OpId op) {
  return trace.class_of(op).stage && trace.microbatch[op.index()] >= 0 &&
         traits(trace.class_of(op).kind).op_class == OpClass::Compute;
}

template <class Visit>
void for_each_signed(const Trace& trace, Visit visit) {
  for (std::int32_t row = 0; row < trace.num_rows(); ++row) {
    for (std::int64_t i = trace.row_begin[static_cast<std::size_t>(row)];
         i < trace.row_begin[static_cast<std::size_t>(row) + 1]; ++i) {
      const OpId op{static_cast<std::int32_t>(i)};
      if (has_signature(trace, op)) visit(signature_of(trace, row, op), op);
    }
  }
}

// Per trace and op, the op of the other that does the same; empty: no op has one. Among several (a
// profile of several steps) the first.
std::vector<std::vector<OpId>> matched(const Trace& a, const Trace& b) {
  std::map<OpSignature, OpId> known;
  for_each_signed(a,
                  [&](const OpSignature& signature, OpId op) { known.try_emplace(signature, op); });
  std::vector<std::vector<OpId>> out{std::vector<OpId>(a.start_ns.size()),
                                     std::vector<OpId>(b.start_ns.size())};
  bool any = false;
  for_each_signed(b, [&](const OpSignature& signature, OpId op) {
    const auto found = known.find(signature);
    if (found == known.end() || out[0][found->second.index()]) return;
    out[0][found->second.index()] = op;
    out[1][op.index()] = found->second;
    any = true;
  });
  return any ? std::move(out) : std::vector<std::vector<OpId>>{};
}

}  // namespace

Document::Document(Trace trace) : trace_(std::make_unique<Trace>(std::move(trace))) {
  if (trace_->idle.empty()) attribute_idle(*trace_);
  index_ = std::make_unique<TraceIndex>(*trace_);
}

void Document::compare_with(std::vector<std::int64_t> elsewhere) {
  elsewhere_ = std::move(elsewhere);
}

const Document::Colored& Document::colored(ColorBy by, const Filter& filter) const {
  const std::vector<std::uint8_t>& asked = kept(filter);
  std::unique_ptr<Colored>& known =
      (asked.empty() ? colored_ : filtered_.colored)[static_cast<std::size_t>(by)];
  if (known == nullptr) {
    known = std::make_unique<Colored>(Colored{.coloring = Coloring(*trace_, by, elsewhere_)});
    if (!asked.empty()) known->coloring.keep_only(asked);
    if (!known->coloring.classes().empty())
      known->own = std::make_unique<TraceIndex>(*trace_, known->coloring.classes());
    known->index = known->own != nullptr ? known->own.get() : index_.get();
  }
  return *known;
}

const std::vector<std::uint8_t>& Document::kept(const Filter& filter) const {
  static const std::vector<std::uint8_t> kAll;
  if (!filter.by_ops()) return kAll;
  if (filtered_.kept.empty() || !(filtered_.filter == filter)) {
    filtered_ = {.filter = filter,
                 .kept = kept_ops(*trace_, coloring(ColorBy::Kinds), filter),
                 .colored = {},
                 .kinds = nullptr};
  }
  return filtered_.kept;
}

const Causality& Document::causality() const {
  if (causality_ == nullptr) causality_ = std::make_unique<Causality>(*trace_);
  return *causality_;
}

const CriticalPath& Document::critical() const {
  if (critical_ == nullptr) critical_ = std::make_unique<CriticalPath>(critical_path(*trace_));
  return *critical_;
}

const std::vector<Arrow>& Document::critical_arrows() const {
  if (critical_arrows_ == nullptr) {
    critical_arrows_ =
        std::make_unique<std::vector<Arrow>>(path_arrows(*trace_, causality(), critical().ops));
  }
  return *critical_arrows_;
}

std::optional<WhatIf> Document::what_if(OpId op) const {
  constexpr std::int32_t kMostOps = 1 << 20;  // a tenth of a second
  if (trace_->num_ops() > kMostOps) return {};
  if (retiming_ == nullptr) retiming_ = std::make_unique<Retiming>(*trace_, causality());
  if (!retiming_->possible()) return {};
  if (what_if_.first != op) {
    what_if_ = {op,
                {.alone = retiming_->step_if(op, WhatIf::kFactor),
                 .alike = retiming_->step_if_all_like(op, WhatIf::kFactor)}};
  }
  return what_if_.second;
}

const std::vector<KindStatistics>& Document::kinds(const Filter& filter) const {
  constexpr std::int32_t kBins = 48;
  const std::vector<std::uint8_t>& asked = kept(filter);
  auto& known = asked.empty() ? kinds_ : filtered_.kinds;
  if (known == nullptr)
    known = std::make_unique<std::vector<KindStatistics>>(statistics(*trace_, kBins, asked));
  return *known;
}

const MemoryCurve& Document::memory(std::int32_t row) const {
  memory_.resize(trace_->rows.size());
  std::unique_ptr<MemoryCurve>& curve = memory_[static_cast<std::size_t>(row)];
  if (curve == nullptr) curve = std::make_unique<MemoryCurve>(*trace_, RankClass{row});
  return *curve;
}

const LinkCurve& Document::link(std::int32_t link) const {
  links_.resize(trace_->links.size());
  std::unique_ptr<LinkCurve>& curve = links_[static_cast<std::size_t>(link)];
  if (curve == nullptr)
    curve = std::make_unique<LinkCurve>(*trace_, static_cast<std::size_t>(link));
  return *curve;
}

const std::vector<std::int32_t>& Document::loaded_links() const {
  if (loaded_links_ == nullptr) {
    loaded_links_ = std::make_unique<std::vector<std::int32_t>>();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(trace_->links.size()); ++i) {
      if (link(i).loaded()) loaded_links_->push_back(i);
    }
  }
  return *loaded_links_;
}

const std::vector<ArenaBlock>& Document::arena(std::int32_t row) const {
  arenas_.resize(trace_->rows.size());
  std::unique_ptr<std::vector<ArenaBlock>>& blocks = arenas_[static_cast<std::size_t>(row)];
  if (blocks == nullptr)
    blocks = std::make_unique<std::vector<ArenaBlock>>(arena_map(*trace_, RankClass{row}));
  return *blocks;
}

const std::vector<OpId>& Document::hits(const std::string& text, const Filter& filter) const {
  if (hits_.text == text && hits_.filter == filter) return hits_.ops;
  hits_ = {text, filter, {}};
  const std::vector<std::uint8_t>& asked = kept(filter);
  for (OpId op{0}; op.value < trace_->num_ops() && !text.empty(); ++op.value) {
    if (hits_.ops.size() == kMostHits) break;
    if (!asked.empty() && asked[op.index()] == 0) continue;
    if (op_name(*trace_, op).find(text) != std::string::npos) hits_.ops.push_back(op);
  }
  return hits_.ops;
}

const std::vector<LegendEntry>& Document::memory_parts() const {
  if (memory_parts_ == nullptr)
    memory_parts_ = std::make_unique<std::vector<LegendEntry>>(memory_legend(*trace_));
  return *memory_parts_;
}

const HeatSource& Document::heat() const {
  if (heat_ == nullptr) heat_ = std::make_unique<HeatSource>(*index_);
  return *heat_;
}

const RankClasses& Document::classes() const {
  if (classes_ == nullptr) classes_ = std::make_unique<RankClasses>(*trace_);
  return *classes_;
}

const std::vector<WaitedFor>& Document::waited_for() const {
  if (waited_for_ == nullptr) {
    waited_for_ = std::make_unique<std::vector<WaitedFor>>(waited_for_ranks(*trace_, causality()));
  }
  return *waited_for_;
}

const std::vector<RankWait>& Document::rank_waits() const {
  if (rank_waits_ == nullptr) {
    rank_waits_ =
        std::make_unique<std::vector<RankWait>>(waits_between_ranks(*trace_, causality()));
  }
  return *rank_waits_;
}

const std::vector<double>& Document::over_median() const {
  if (over_median_ == nullptr)
    over_median_ = std::make_unique<std::vector<double>>(viz::over_median(*trace_));
  return *over_median_;
}

Session::Session(std::vector<Document> documents, std::optional<Waterfall> waterfall)
    : documents_(std::move(documents)), waterfall_(std::move(waterfall)) {
  const Trace& first = documents_[0].trace();
  for (const Document& document : documents_) {
    longest_step_ = std::max(longest_step_, document.trace().step().value);
  }
  if (compares()) {
    const Trace& second = documents_[1].trace();
    same_schedule_ = first.num_ops() == second.num_ops() && first.num_rows() == second.num_rows() &&
                     first.schedule_hash == second.schedule_hash && !first.schedule_hash.empty();
    if (first.num_rows() == second.num_rows() &&
        first.schedule_hash.empty() != second.schedule_hash.empty()) {
      counterparts_ = matched(first, second);
    }
    if (corresponds()) {
      std::vector<std::int64_t> elsewhere;
      for (OpId op{0}; op.value < second.num_ops(); ++op.value) {
        const OpId same = counterpart({1, op});
        elsewhere.push_back(same ? first.end_ns[same.index()] - first.start_ns[same.index()] : -1);
      }
      documents_[1].compare_with(std::move(elsewhere));
    }
  }
  std::int64_t first_backward = 0, last_forward = first.step().value;
  for (std::int32_t row = 0; row < first.num_rows(); ++row) {
    std::int64_t backward = std::numeric_limits<std::int64_t>::max(), forward = 0;
    for (auto i = static_cast<std::size_t>(first.row_begin[static_cast<std::size_t>(row)]);
         i < static_cast<std::size_t>(first.row_begin[static_cast<std::size_t>(row) + 1]); ++i) {
      const OpKind kind = first.class_of({static_cast<std::int32_t>(i)}).kind;
      if (is_backward(kind)) backward = std::min(backward, first.start_ns[i] - first.begin.value);
      if (kind == OpKind::Forward) forward = std::max(forward, first.end_ns[i] - first.begin.value);
    }
    if (backward == std::numeric_limits<std::int64_t>::max() || forward == 0) continue;
    first_backward = std::max(first_backward, backward);
    last_forward = std::min(last_forward, forward);
  }
  warmup_end_ = first_backward;
  cooldown_begin_ = std::max(last_forward, first_backward);
}

void Session::prepare() const {
  for (const Document& document : documents_) (void)document.causality();
}

std::int64_t Session::origin(std::int32_t document, const Alignment& alignment) const {
  const Trace& first = at(0).trace();
  if (document == 0) return first.begin.value;
  const OpId same = alignment.op ? counterpart({1, alignment.op}) : OpId{};
  return origin_of_second(first, at(1).trace(), alignment.how, same, alignment.op);
}

std::pair<double, double> Session::extent(const Alignment& alignment) const {
  if (!compares() || alignment.how == Align::Step) return {0.0, static_cast<double>(longest_step_)};
  const Trace& second = at(1).trace();
  const std::int64_t origin = this->origin(1, alignment);
  return {static_cast<double>(std::min<std::int64_t>(0, second.begin.value - origin)),
          static_cast<double>(std::max(at(0).trace().step().value, second.end.value - origin))};
}

const std::vector<OpId>& Session::same() const {
  if (!counterparts_.empty()) return counterparts_[1];
  if (same_.empty()) {
    same_.reserve(at(1).trace().start_ns.size());
    for (OpId op{0}; op.value < at(1).trace().num_ops(); ++op.value) same_.push_back(op);
  }
  return same_;
}

const LagCurve& Session::lag(std::int32_t row) const {
  lags_.resize(at(1).trace().rows.size());
  std::unique_ptr<LagCurve>& curve = lags_[static_cast<std::size_t>(row)];
  if (curve == nullptr)
    curve = std::make_unique<LagCurve>(at(0).trace(), at(1).trace(), same(), RankClass{row});
  return *curve;
}

std::string Session::name_of(std::int32_t document) const {
  const Trace& trace = at(document).trace();
  const Trace& other = at(1 - document).trace();
  if (trace.label != other.label)
    return trace.label == TraceLabel::Predicted ? "predicted" : "measured";
  if (trace.schedule_hash != other.schedule_hash && !trace.schedule_name.empty())
    return trace.schedule_name.substr(0, trace.schedule_name.find('('));
  return document == 0 ? "first" : "second";
}

const LagCurve::Range& Session::greatest_lag() const {
  if (greatest_lag_) return *greatest_lag_;
  const Trace &a = at(0).trace(), &b = at(1).trace();
  LagCurve::Range range;
  for (OpId op{0}; op.value < b.num_ops(); ++op.value) {
    const OpId there = counterpart({1, op});
    if (!there || b.class_of(op).slot != 0) continue;
    const std::int64_t lag =
        (b.end_ns[op.index()] - b.begin.value) - (a.end_ns[there.index()] - a.begin.value);
    range = range.known
                ? LagCurve::Range{std::min(range.least, lag), std::max(range.most, lag), true}
                : LagCurve::Range{lag, lag, true};
  }
  return greatest_lag_.emplace(range);
}

const RankClasses& Session::classes(std::int32_t document) const {
  if (compares() && corresponds())
    document =
        at(0).trace().label == TraceLabel::Measured && at(1).trace().label != TraceLabel::Measured
            ? 0
            : 1;
  return at(document).classes();
}

std::size_t Session::class_number(std::int32_t document, std::int32_t row) const {
  const std::int32_t first = classes(document).first(row);
  const bool behind = document == 1 && !corresponds();
  return static_cast<std::size_t>(first + (behind ? at(0).trace().num_rows() : 0));
}

std::size_t Session::num_rows() const {
  std::size_t rows = 0;
  for (const Document& document : documents_) rows += document.trace().rows.size();
  return rows;
}

OpId Session::counterpart(OpRef ref) const {
  if (same_schedule_) return ref.op;
  return counterparts_.empty()
             ? OpId{}
             : counterparts_[static_cast<std::size_t>(ref.document)][ref.op.index()];
}

}  // namespace rehearse::viz
