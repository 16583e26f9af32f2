// SPDX-License-Identifier: Apache-2.0
#include "viz/window/state/document.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

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

Session::Session(std::vector<Document> documents) : documents_(std::move(documents)) {
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

OpId Session::counterpart(OpRef ref) const {
  if (same_schedule_) return ref.op;
  return counterparts_.empty()
             ? OpId{}
             : counterparts_[static_cast<std::size_t>(ref.document)][ref.op.index()];
}

}  // namespace rehearse::viz
