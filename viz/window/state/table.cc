// SPDX-License-Identifier: Apache-2.0
#include "viz/window/state/table.h"

#include <algorithm>
#include <numeric>

#include "schedules/trace/kind_name.h"
#include "schedules/trace/trace_inside.h"
#include "viz/analysis/bubble.h"
#include "viz/analysis/inside.h"
#include "viz/analysis/units_text.h"
#include "viz/picture/font.h"
#include "viz/picture/paint_curves.h"

namespace rehearse::viz {
namespace {

constexpr std::size_t kMostLines = 10'000;

Cell time_cell(std::int64_t ns) {
  return {time_text(ns), static_cast<double>(ns)};
}
Cell count_cell(std::int64_t count) {
  return {std::to_string(count), static_cast<double>(count)};
}

void statistics_lines(const Session& session, const ViewState& state, Table& table) {
  const bool two = session.compares();
  table.columns = {{"op", 1.3}};
  if (two) table.columns.push_back({"trace", 0.9});
  for (const std::string_view name : {"count", "total", "share", "shortest", "median", "longest"})
    table.columns.push_back({name, name == "count" || name == "share" ? 0.7 : 0.9, true});
  table.columns.push_back({"lengths, shortest to longest", 2.2});
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
    const std::vector<KindStatistics>& kinds = session.at(d).kinds(state.filter);
    const std::int64_t all =
        std::accumulate(kinds.begin(), kinds.end(), std::int64_t{0},
                        [](std::int64_t sum, const KindStatistics& k) { return sum + k.total; });
    for (const KindStatistics& kind : kinds) {
      TableLine line{.only = "kinds " + kind_name(kind.kind, kind.payload),
                     .color = color_of(kind.kind)};
      line.cells = {{kind_name(kind.kind, kind.payload)}};
      if (two) line.cells.push_back({session.name_of(d)});
      const double share =
          all == 0 ? 0 : static_cast<double>(kind.total) / static_cast<double>(all);
      line.cells.insert(line.cells.end(), {count_cell(kind.count),
                                           time_cell(kind.total),
                                           {percent_text(share), share},
                                           time_cell(kind.shortest),
                                           time_cell(kind.median),
                                           time_cell(kind.longest),
                                           {}});
      const auto most =
          static_cast<float>(std::max<std::int64_t>(1, *std::ranges::max_element(kind.histogram)));
      for (const std::int64_t bin : kind.histogram)
        line.histogram.push_back(static_cast<float>(bin) / most);
      table.lines.push_back(std::move(line));
    }
  }
  if (two) {  // the two of a kind stand together
    std::ranges::stable_sort(table.lines, {},
                             [](const TableLine& line) { return line.cells[0].text; });
  }
}

void hit_lines(const Session& session, const ViewState& state, Table& table) {
  table.columns = {{"op", 1.5},
                   {"rank", 1.6},
                   {"micro-batch", 0.9, true},
                   {"begin", 1, true},
                   {"length", 1, true}};
  const std::int32_t d = state.selected ? state.selected.document : 0;
  const Document& document = session.at(d);
  const Trace& trace = document.trace();
  const std::vector<OpId>& hits = document.hits(state.search, state.filter);
  for (const OpId op : hits) {
    const std::int32_t number = trace.microbatch[op.index()];
    table.lines.push_back(
        {.cells = {{op_name(trace, op)},
                   {row_name(trace, trace.row_of(op))},
                   number < 0 ? Cell{"", -1} : count_cell(number),
                   time_cell(trace.start_ns[op.index()] - trace.begin.value),
                   time_cell(trace.end_ns[op.index()] - trace.start_ns[op.index()])},
         .op = {d, op},
         .color = color_of(trace.class_of(op).kind)});
  }
  table.note = std::to_string(hits.size()) + (hits.size() == 1 ? " op" : " ops");
  if (hits.size() == Document::kMostHits) table.note = "the first " + table.note;
  if (state.search.empty()) table.note = "/ and a part of a name, as 2B5";
}

struct BubbleSpan {
  std::int32_t document = 0, row = 0, first = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t length() const { return end - begin; }
};

// The longest bubbles of those that are added, and how many those were.
class LongestBubbles {
 public:
  void add(const BubbleSpan& span) {
    ++count_;
    spans_.push_back(span);
    if (spans_.size() >= 4 * kMostLines) cut();
  }
  std::int64_t count() const { return count_; }
  std::vector<BubbleSpan> take() {
    cut();
    return std::move(spans_);
  }

 private:
  void cut() {
    std::ranges::stable_sort(spans_, std::greater{}, &BubbleSpan::length);
    spans_.resize(std::min(spans_.size(), kMostLines));
  }

  std::vector<BubbleSpan> spans_;
  std::int64_t count_ = 0;
};

// Idle spans of a row that touch are one bubble.
void add_bubbles(const Trace& trace, std::int32_t document, std::int32_t row,
                 LongestBubbles& longest) {
  const auto r = static_cast<std::size_t>(row);
  if (trace.idle_begin.size() <= r + 1) return;
  BubbleSpan now;
  for (auto i = trace.idle_begin[r]; i < trace.idle_begin[r + 1]; ++i) {
    const IdleSpan& idle = trace.idle[static_cast<std::size_t>(i)];
    if (now.length() > 0 && now.end == idle.begin) {
      now.end = idle.end;
      continue;
    }
    if (now.length() > 0) longest.add(now);
    now = {document, row, static_cast<std::int32_t>(i), idle.begin, idle.end};
  }
  if (now.length() > 0) longest.add(now);
}

void bubble_lines(const Session& session, const ViewState& state, Table& table) {
  const bool two = session.compares();
  table.columns = {{"rank", 1.5}};
  if (two) table.columns.push_back({"trace", 0.9});
  table.columns.insert(table.columns.end(), {{"length", 1, true},
                                             {"most of it", 1.2},
                                             {"waits for", 1.2},
                                             {"on", 1.5},
                                             {"before", 1.2},
                                             {"begin", 1, true}});
  LongestBubbles longest;
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
    const Trace& trace = session.at(d).trace();
    const std::vector<std::uint8_t> rows = kept_rows(trace, state.filter);
    for (std::int32_t row = 0; row < trace.num_rows(); ++row)
      if (rows[static_cast<std::size_t>(row)] != 0) add_bubbles(trace, d, row, longest);
  }
  const std::vector<BubbleSpan> spans = longest.take();
  table.note = std::to_string(longest.count()) + " bubbles";
  if (longest.count() > static_cast<std::int64_t>(spans.size()))
    table.note = "the " + std::to_string(spans.size()) + " longest of " + table.note;
  for (const BubbleSpan& span : spans) {
    const Document& document = session.at(span.document);
    const Trace& trace = document.trace();
    const Bubble bubble = bubble_at(trace, document.causality(), span.first);
    const auto cause =
        static_cast<std::size_t>(std::ranges::max_element(bubble.causes) - bubble.causes.begin());
    const OpId source = bubble.wait.source;
    TableLine line{.cells = {{row_name(trace, bubble.row)}},
                   .op = {span.document, bubble.op},
                   .color = style_of(kind_of(static_cast<IdleCause>(cause)),
                                     state.dark ? Theme::Dark : Theme::Light)
                                .ink};
    if (two) line.cells.push_back({session.name_of(span.document)});
    line.cells.insert(line.cells.end(), {time_cell(bubble.end - bubble.begin),
                                         {std::string(kIdleCauseNames[cause])},
                                         {source ? op_name(trace, source) : ""},
                                         {source ? row_name(trace, trace.row_of(source)) : ""},
                                         {bubble.op ? op_name(trace, bubble.op) : "the end"},
                                         time_cell(bubble.begin - trace.begin.value)});
    table.lines.push_back(std::move(line));
  }
}

// Bars of what was waited, by cause, as long as their share of `most`.
template <class Waits>
std::vector<TableLine::Bar> cause_bars(const Waits& waits, std::int64_t most, Theme theme) {
  std::vector<TableLine::Bar> bars;
  double at = 0;
  for (std::size_t c = 0; c < kNumIdleCauses; ++c) {
    if (!WaitedFor::counts(c) || waits.causes[c] == 0 || most <= 0) continue;
    const double end = at + static_cast<double>(waits.causes[c]) / static_cast<double>(most);
    bars.push_back({static_cast<float>(at), static_cast<float>(end),
                    style_of(kind_of(static_cast<IdleCause>(c)), theme).ink});
    at = end;
  }
  return bars;
}

Cell share_cell(std::int64_t part, std::int64_t whole) {
  const double share = whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
  return {percent_text(share), share};
}

std::string cause_name(OpId op, IdleCause cause) {
  return op ? std::string(kIdleCauseNames[static_cast<std::size_t>(cause)]) : std::string();
}

std::int64_t rank_time(const Trace& trace) {
  std::int64_t ranks = 0;
  for (const TraceRow& row : trace.rows) ranks += row.multiplicity;
  return ranks * trace.step().value;
}

std::string no_waits(const Session& session) {
  for (const Document& document : session.documents()) {
    if (knows_waits(document.trace())) return "no rank waited for another one between its ops";
  }
  return "this trace does not know what waited for what";
}

void straggler_lines(const Session& session, const ViewState& state, Table& table) {
  const bool two = session.compares();
  bool over = false;
  for (const Document& document : session.documents())
    over = over || !document.over_median().empty();
  table.columns = {{"rank", 1.5}};
  if (two) table.columns.push_back({"trace", 0.9});
  table.columns.insert(table.columns.end(), {{"waited", 0.9, true},
                                             {"share", 0.8, true},
                                             {"times", 0.7, true},
                                             {"longest", 0.9, true},
                                             {"for its op", 1.1},
                                             {"by", 1.7}});
  if (over) table.columns.push_back({"over median", 1.2, true});
  table.columns.push_back({"by cause", 1.2});
  std::int64_t all = 0, most = 1;
  std::size_t ranks = 0;
  for (const Document& document : session.documents()) {
    for (const WaitedFor& one : document.waited_for()) {
      all += one.time();
      most = std::max(most, one.time());
      ++ranks;
    }
  }
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
    const Document& document = session.at(d);
    const Trace& trace = document.trace();
    const std::vector<double>& median = document.over_median();
    const std::int64_t whole = rank_time(trace);
    const std::vector<std::uint8_t> rows = kept_rows(trace, state.filter);
    for (const WaitedFor& one : document.waited_for()) {
      if (rows[one.row.index()] == 0 || table.lines.size() >= kMostLines) continue;
      TableLine line{
          .cells = {{row_name(trace, one.row)}},
          .op = {d, one.op},
          .color = style_of(kind_of(one.cause), state.dark ? Theme::Dark : Theme::Light).ink};
      if (two) line.cells.push_back({session.name_of(d)});
      line.cells.insert(line.cells.end(), {time_cell(one.time()),
                                           share_cell(one.time(), whole),
                                           count_cell(one.bubbles),
                                           one.op ? time_cell(one.longest) : Cell{},
                                           {one.op ? op_name(trace, one.op) : ""},
                                           {one.op ? op_name(trace, one.waiter) + " on " +
                                                         row_name(trace, trace.row_of(one.waiter))
                                                   : ""}});
      if (over) {
        const double by = median.empty() ? 0 : median[one.row.index()];
        line.cells.push_back(median.empty() ? Cell{}
                                            : Cell{(by >= 0 ? "+" : "") + percent_text(by), by});
      }
      line.cells.push_back({cause_name(one.op, one.cause)});
      line.bars = cause_bars(one, most, state.dark ? Theme::Dark : Theme::Light);
      table.lines.push_back(std::move(line));
    }
  }
  std::ranges::stable_sort(table.lines, std::greater{},
                           [&](const TableLine& line) { return line.cells[two ? 2 : 1].value; });
  table.note = ranks == 0 ? no_waits(session)
                          : "others waited " + time_text(all) + " of ranks' time for " +
                                std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks") +
                                "; filling and draining not counted";
}

void wait_lines(const Session& session, const ViewState& state, Table& table) {
  const bool two = session.compares();
  table.columns = {{"rank", 1.5}};
  if (two) table.columns.push_back({"trace", 0.9});
  table.columns.insert(table.columns.end(), {{"waited for", 1.5},
                                             {"time", 0.9, true},
                                             {"share", 0.8, true},
                                             {"times", 0.7, true},
                                             {"longest", 0.9, true},
                                             {"before", 1},
                                             {"for", 1},
                                             {"by cause", 1.4}});
  std::int64_t most = 1;
  std::size_t pairs = 0;
  for (const Document& document : session.documents()) {
    for (const RankWait& one : document.rank_waits()) most = std::max(most, one.time());
    pairs += document.rank_waits().size();
  }
  for (std::int32_t d = 0; d < static_cast<std::int32_t>(session.documents().size()); ++d) {
    const Document& document = session.at(d);
    const Trace& trace = document.trace();
    const std::vector<std::uint8_t> rows = kept_rows(trace, state.filter);
    for (const RankWait& one : document.rank_waits()) {
      if (rows[one.waiter.index()] == 0 || table.lines.size() >= kMostLines) continue;
      const std::int64_t own = trace.rows[one.waiter.index()].multiplicity * trace.step().value;
      TableLine line{
          .cells = {{row_name(trace, one.waiter)}},
          .op = {d, one.waiting},
          .color = style_of(kind_of(one.cause), state.dark ? Theme::Dark : Theme::Light).ink};
      if (two) line.cells.push_back({session.name_of(d)});
      line.cells.insert(line.cells.end(), {{row_name(trace, one.source)},
                                           time_cell(one.time()),
                                           share_cell(one.time(), own),
                                           count_cell(one.bubbles),
                                           one.op ? time_cell(one.longest) : Cell{},
                                           {one.op ? op_name(trace, one.waiting) : ""},
                                           {one.op ? op_name(trace, one.op) : ""},
                                           {cause_name(one.op, one.cause)}});
      line.bars = cause_bars(one, most, state.dark ? Theme::Dark : Theme::Light);
      table.lines.push_back(std::move(line));
    }
  }
  std::ranges::stable_sort(table.lines, std::greater{},
                           [&](const TableLine& line) { return line.cells[two ? 3 : 2].value; });
  table.note =
      pairs == 0
          ? no_waits(session)
          : std::to_string(pairs) + " pairs of rows; filling and draining not counted" +
                (pairs > table.lines.size() ? ", " + std::to_string(table.lines.size()) + " shown"
                                            : std::string());
}

// From the first step to the second: each bar begins where the one above it ends.
void cause_lines(const Session& session, Table& table) {
  table.columns = {{"cause", 2.4},
                   {"difference", 0.9, true},
                   {"share", 0.8, true},
                   {"from the first step to the second", 2.6}};
  if (!session.waterfall()) {
    table.note = session.compares() ? "these traces hold no steps whose causes are known"
                                    : "causes are of two traces: rehearse view FIRST SECOND";
    return;
  }
  constexpr Color kTotal{0, 114, 178}, kLonger{213, 94, 0}, kShorter{0, 158, 115};
  const Waterfall& fall = *session.waterfall();
  std::int64_t at = fall.begin, least = at, most = at;
  for (const WaterfallStep& step : fall.steps) {
    at += step.difference;
    least = std::min(least, at);
    most = std::max(most, at);
  }
  // Where the differences are small against the totals the bars do not begin at 0.
  constexpr std::int64_t kSmall = 4;
  const std::int64_t zero = least < most && (most - least) * kSmall < most
                                ? std::max<std::int64_t>(0, least - (most - least) / 2)
                                : 0;
  const auto share = [&](std::int64_t ns) {
    return static_cast<float>(static_cast<double>(ns - zero) /
                              static_cast<double>(std::max<std::int64_t>(1, most - zero)));
  };
  const auto total = [&](const std::string& name, std::int64_t ns) {
    table.lines.push_back({.cells = {{name}, time_cell(ns), {}, {}},
                           .color = kTotal,
                           .bars = {{0, share(ns), kTotal}}});
  };
  total(fall.from, fall.begin);
  at = fall.begin;
  for (const WaterfallStep& step : fall.steps) {
    const std::int64_t next = at + step.difference;
    const Color color = step.difference > 0 ? kLonger : kShorter;
    Cell difference = time_cell(step.difference), part = share_cell(step.difference, fall.begin);
    if (step.difference > 0) {
      difference.text = "+" + difference.text;
      part.text = "+" + part.text;
    }
    table.lines.push_back(
        {.cells = {{step.label}, std::move(difference), std::move(part), {}},
         .color = color,
         .bars = {{share(std::min(at, next)), share(std::max(at, next)), color}}});
    at = next;
  }
  total(fall.to, at);
  table.note = fall.title + (fall.title.ends_with('.') ? "" : ".") +
               (zero > 0 ? " Bars begin at " + time_text(zero) + "." : "");
}

// Values where the trace has them, else what memory is for.
void memory_lines(const Session& session, const ViewState& state, Table& table) {
  const std::int32_t d = state.memory_at  ? state.memory_at->document
                         : state.selected ? state.selected.document
                                          : 0;
  const Document& document = session.at(d);
  const Trace& trace = document.trace();
  if (trace.memory_time.empty()) {
    table.columns = {{"value", 1}};
    table.note = "this trace has no memory";
    return;
  }
  const std::int32_t row = state.memory_at  ? state.memory_at->row
                           : state.selected ? trace.row_of(state.selected.op).value
                                            : 0;
  const MemoryPeak& peak = document.memory(row).peak();
  const auto bytes = [&](std::int64_t count) {
    return Cell{bytes_text(count, peak.bytes), static_cast<double>(count)};
  };
  const auto share = [&](std::int64_t count) {
    const double of =
        peak.bytes > 0 ? static_cast<double>(count) / static_cast<double>(peak.bytes) : 0;
    return Cell{percent_text(of), of};
  };
  table.note = row_name(trace, {row}) + ": " + bytes_text(peak.bytes) + " at " +
               time_text(peak.time - trace.begin.value);
  const std::vector<std::int32_t> alive = alive_at(trace, {row}, peak.time);
  if (alive.empty()) {
    table.columns = {{"memory for", 2}, {"bytes", 1, true}, {"share", 0.7, true}};
    for (std::size_t part = 0; part < trace.memory_parts.size(); ++part) {
      if (peak.parts[part] == 0) continue;
      table.lines.push_back(
          {.cells = {{trace.memory_parts[part]}, bytes(peak.parts[part]), share(peak.parts[part])},
           .color = memory_color(part)});
    }
    return;
  }
  table.columns = {{"value", 2},
                   {"bytes", 1, true},
                   {"share", 0.7, true},
                   {"made by", 1.4},
                   {"used last by", 1.4}};
  for (const std::int32_t id : alive) {
    const TraceValue& value = trace.values[static_cast<std::size_t>(id)];
    table.lines.push_back(
        {.cells = {{value_name(trace, id)},
                   bytes(value.bytes),
                   share(value.bytes),
                   {value.define ? op_name(trace, value.define) : "before the step"},
                   {value.last_use && value.hold_until ? op_name(trace, value.last_use) : "kept"}},
         .op = {d, value.define},
         .color = {120, 120, 124}});
  }
}

void sort_lines(const Sort& by, Table& table) {
  if (by.column < 0 || by.column >= static_cast<std::int32_t>(table.columns.size())) return;
  const auto column = static_cast<std::size_t>(by.column);
  const bool number = table.columns[column].number;
  const auto less = [&](const TableLine& a, const TableLine& b) {
    const Cell &x = a.cells[column], &y = b.cells[column];
    return number ? x.value < y.value : x.text < y.text;
  };
  std::ranges::stable_sort(table.lines, [&](const TableLine& a, const TableLine& b) {
    return by.falling ? less(b, a) : less(a, b);
  });
}

// What a column's longest text takes, with what stands around it.
double need_of(const Table& table, std::size_t column) {
  constexpr double kPadding = 12, kMark = 14, kSortMark = 10, kPlot = 90;
  double need = text_width(table.columns[column].name, TextSize::Small) + kSortMark;
  std::size_t bytes = 0;
  for (const TableLine& line : table.lines) {
    const bool last = column > 0 && column + 1 == table.columns.size();
    if (last && !(line.histogram.empty() && line.bars.empty())) need = std::max(need, kPlot);
    const std::string& text = line.cells[column].text;
    constexpr std::size_t kNarrower = 2;  // far shorter than another one: not the widest
    if (text.size() + kNarrower < bytes) continue;
    bytes = std::max(bytes, text.size());
    need = std::max<double>(need, text_width(text, TextSize::Small));
  }
  return need + kPadding + (column == 0 ? kMark : 0);
}

// What a table depends on; the rest as it is at first.
ViewState table_part(const ViewState& state) {
  ViewState part;
  part.table = state.table;
  part.sorts = state.sorts;
  part.filter = state.filter;
  part.dark = state.dark;
  if (state.table == TableKind::Hits) part.search = state.search;
  if (state.table == TableKind::Hits) part.selected.document = state.selected.document;
  if (state.table != TableKind::Memory) return part;
  part.memory_at = state.memory_at;
  part.selected = state.selected;
  return part;
}

}  // namespace

Table make_table(const Session& session, const ViewState& state) {
  Table table;
  switch (state.table) {
    case TableKind::None:
      break;
    case TableKind::Statistics:
      statistics_lines(session, state, table);
      break;
    case TableKind::Hits:
      hit_lines(session, state, table);
      break;
    case TableKind::Bubbles:
      bubble_lines(session, state, table);
      break;
    case TableKind::Memory:
      memory_lines(session, state, table);
      break;
    case TableKind::Stragglers:
      straggler_lines(session, state, table);
      break;
    case TableKind::Waits:
      wait_lines(session, state, table);
      break;
    case TableKind::Causes:
      cause_lines(session, table);
      break;
  }
  sort_lines(state.sorts[static_cast<std::size_t>(state.table)], table);
  for (std::size_t i = 0; i < table.columns.size(); ++i) table.columns[i].need = need_of(table, i);
  return table;
}

std::vector<double> column_widths(const Table& table, double width) {
  constexpr double kLeastText = 56;
  double all = 0, shares = 0, left = width;
  std::vector<double> widths, texts;
  for (const TableColumn& column : table.columns) {
    all += column.need;
    shares += column.width;
    widths.push_back(column.need);
    if (column.number) left -= column.need;
    if (!column.number) texts.push_back(column.need);
  }
  if (all <= width) {
    for (std::size_t i = 0; i < widths.size(); ++i)
      widths[i] += (width - all) * table.columns[i].width / shares;
    return widths;
  }
  // The longest texts give way, to one length.
  std::ranges::sort(texts);
  double most = 0;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    most = left / static_cast<double>(texts.size() - i);
    if (texts[i] >= most) break;
    left -= texts[i];
  }
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (!table.columns[i].number) widths[i] = std::min(widths[i], std::max(kLeastText, most));
  }
  return widths;
}

bool has_table(const Session& session, TableKind table) {
  return table != TableKind::Causes || session.compares();
}

std::string tab_separated(const Table& table) {
  std::string text;
  const auto add = [&text](std::string_view cell, bool first) {
    if (!first) text += '\t';
    for (const char c : cell) text += c == '\t' || c == '\n' ? ' ' : c;
  };
  for (std::size_t i = 0; i < table.columns.size(); ++i) add(table.columns[i].name, i == 0);
  text += '\n';
  for (const TableLine& line : table.lines) {
    for (std::size_t i = 0; i < line.cells.size(); ++i) add(line.cells[i].text, i == 0);
    text += '\n';
  }
  return text;
}

const Table& TableCache::of(const Session& session, const ViewState& state) {
  ViewState part = table_part(state);
  if (!made_ || !(part == made_for_)) {
    table_ = make_table(session, state);
    made_for_ = std::move(part);
    made_ = true;
  }
  return table_;
}

}  // namespace rehearse::viz
