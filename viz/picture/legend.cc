// SPDX-License-Identifier: Apache-2.0
#include "viz/picture/legend.h"

#include <algorithm>
#include <numeric>

#include "viz/picture/paint.h"
#include "viz/picture/paint_curves.h"

namespace rehearse::viz {

namespace {

template <class StyleOf>
std::vector<LegendEntry> entries_of(const Summary& summary, Theme theme, const StyleOf& style_of) {
  std::vector<LegendEntry> entries;
  for (std::size_t kind = 0; kind < kNumOpKinds; ++kind) {
    const std::int64_t time = summary.kinds[kind] - summary.in_body[kind];
    if (time == 0) continue;
    const KindStyle style = style_of(static_cast<Kind>(kind));
    const auto same = std::ranges::find(entries, style.name, &LegendEntry::name);
    if (same != entries.end()) {
      same->time += time;
    } else {
      entries.push_back({style, std::string(style.name), time});
    }
  }
  for (std::size_t cause = 0; cause < kNumIdleCauses; ++cause) {
    if (summary.causes[cause] == 0) continue;
    const KindStyle style = style_of(kind_of(static_cast<IdleCause>(cause)));
    entries.push_back({style, "bubble: " + std::string(style.name), summary.causes[cause]});
  }
  const std::int64_t in_body =
      std::accumulate(summary.in_body.begin(), summary.in_body.end(), std::int64_t{0});
  if (in_body > 0) {
    entries.push_back({{.fill = in_body_color(), .ink = in_body_color()},
                       "inside ops: waits for own collectives",
                       in_body});
  }
  if (summary.unexplained > 0) {
    entries.push_back({{.fill = palette(theme).lane, .ink = palette(theme).faint_text},
                       "idle",
                       summary.unexplained});
  }
  for (LegendEntry& entry : entries) {
    entry.share = summary.share(entry.time);
    entry.shown = entry.share >= 0.0005;
  }
  return entries;
}

}  // namespace

std::vector<LegendEntry> legend(const Summary& summary, Theme theme) {
  return entries_of(summary, theme, [theme](Kind kind) { return style_of(kind, theme); });
}

std::vector<LegendEntry> legend(const Summary& summary, const Coloring& coloring, Theme theme) {
  std::vector<LegendEntry> entries =
      entries_of(summary, theme, [&](Kind kind) { return coloring.style(kind, theme); });
  if (coloring.by() != ColorBy::Layer) return entries;
  for (Kind kind = 1; !coloring.style(kind, theme).name.empty(); ++kind) {
    const KindStyle style = coloring.style(kind, theme);
    if (std::ranges::find(entries, style.name, &LegendEntry::name) != entries.end()) continue;
    entries.push_back({.style = style, .name = std::string(style.name), .shown = false});
  }
  return entries;
}

std::vector<LegendEntry> memory_legend(const Trace& trace) {
  std::vector<LegendEntry> entries;
  for (std::size_t part = 0; part < trace.memory_parts.size(); ++part) {
    const bool used = [&] {
      for (std::size_t i = part; i < trace.memory_bytes.size(); i += trace.memory_parts.size()) {
        if (trace.memory_bytes[i] != 0) return true;
      }
      return false;
    }();
    if (!used) continue;
    const Color color = memory_color(part);
    entries.push_back({{.fill = color, .ink = color},
                       (entries.empty() ? "memory: " : "") + trace.memory_parts[part]});
  }
  return entries;
}

}  // namespace rehearse::viz
