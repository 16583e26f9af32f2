// SPDX-License-Identifier: Apache-2.0
// Throughput and cost of a purchase against the number of GPUs, as one SVG picture.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/search/report/search_report.h"

namespace rehearse::sim {
namespace {

constexpr std::array<const char*, 6> kColours{"#1f6fb4", "#d9731a", "#2b8a3e",
                                              "#b02a5b", "#6b4fa0", "#7a6a00"};
constexpr double kLeft = 78, kWidth = 420, kHeight = 260, kTop = 46, kGap = 110;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c == '&' ? std::string("&amp;") : c == '<' ? std::string("&lt;") : std::string(1, c);
  }
  return out;
}

struct Point {
  double gpus = 1, value = 0;
};
struct Series {
  std::string name;
  std::vector<Point> points;
};

// The largest of 1, 2, 5 times a power of ten that cuts `most` into at least four.
double step_of(double most) {
  const double power = std::pow(10, std::floor(std::log10(most / 4)));
  for (const double factor : {5.0, 2.0}) {
    if (most / (factor * power) >= 4) return factor * power;
  }
  return power;
}

std::string number(double value) {
  if (value >= 1e6) return fmt::format("{:g} M", value * 1e-6);
  if (value >= 1e3) return fmt::format("{:g} k", value * 1e-3);
  return fmt::format("{:g}", value);
}

std::string panel(double x, const std::string& title, const std::vector<Series>& all) {
  double most = 0, least_gpus = 1e18, most_gpus = 1;
  for (const Series& series : all) {
    for (const Point& point : series.points) {
      most = std::max(most, point.value);
      least_gpus = std::min(least_gpus, point.gpus);
      most_gpus = std::max(most_gpus, point.gpus);
    }
  }
  std::string out = fmt::format("<text x=\"{:.0f}\" y=\"{:.0f}\" font-weight=\"bold\">{}</text>\n",
                                x, kTop - 18, title);
  if (most <= 0) return out;
  const double step = step_of(most), high = step * std::ceil(most / step);
  const double span = std::max(std::log2(most_gpus / least_gpus), 1e-9);
  const auto at_x = [&](double gpus) {
    return x + 14 + (kWidth - 28) * (span < 1e-6 ? 0.5 : std::log2(gpus / least_gpus) / span);
  };
  const auto at_y = [&](double value) { return kTop + kHeight * (1 - value / high); };
  for (double value = 0; value <= high * 1.0001; value += step) {
    out += fmt::format(
        "<line x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#d8d8d8\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        x, x + kWidth, at_y(value), x - 6, at_y(value) + 4, number(value));
  }
  std::vector<double> ticks;
  for (const Series& series : all) {
    for (const Point& point : series.points) ticks.push_back(point.gpus);
  }
  std::ranges::sort(ticks);
  ticks.erase(std::unique(ticks.begin(), ticks.end()), ticks.end());
  for (const double gpus : ticks) {
    out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{:g}</text>\n",
                       at_x(gpus), kTop + kHeight + 18, gpus);
  }
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">GPUs</text>\n",
                     x + kWidth / 2, kTop + kHeight + 36);
  for (std::size_t s = 0; s < all.size(); ++s) {
    const char* colour = kColours[s % kColours.size()];
    std::string line;
    for (const Point& point : all[s].points) {
      line += fmt::format("{:.1f},{:.1f} ", at_x(point.gpus), at_y(point.value));
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n",
                         at_x(point.gpus), at_y(point.value), colour);
    }
    out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                       line, colour);
  }
  return out;
}

template <class Value>
std::vector<Series> series_of(const SearchReport& report, Value value) {
  std::vector<Series> all;
  for (const SearchCase& one : report.cases) {
    auto found = std::ranges::find(all, one.cluster, &Series::name);
    if (found == all.end()) {
      all.push_back({one.cluster, {}});
      found = all.end() - 1;
    }
    if (one.result.best.empty()) continue;
    const double number_there = value(one, one.result.best.front());
    if (number_there > 0) found->points.push_back({static_cast<double>(one.gpus), number_there});
  }
  for (Series& series : all) std::ranges::stable_sort(series.points, {}, &Point::gpus);
  return all;
}

}  // namespace

std::string search_svg(const SearchReport& report) {
  const std::vector<Series> rate =
      series_of(report, [](const SearchCase&, const FoundPlan& plan) { return plan.tokens_per_s; });
  const std::vector<Series> cost =
      series_of(report, [](const SearchCase& one, const FoundPlan& plan) {
        if (!plan.usd_per_step) return 0.0;
        return *plan.usd_per_step / (plan.tokens_per_s * plan.step_s) * 1e9 /
               (one.goodput ? one.goodput->share : 1);
      });
  const bool priced =
      std::ranges::any_of(cost, [](const Series& series) { return !series.points.empty(); });
  const double width = kLeft + kWidth + 30 + (priced ? kWidth + kGap : 0);
  const double legend = kTop + kHeight + 62;
  const double height = legend + 18 * static_cast<double>(rate.size()) + 8;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<title>{2}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      width, height, escaped(report.name));
  out += panel(kLeft, "tokens per second", rate);
  if (priced) out += panel(kLeft + kWidth + kGap, "USD per billion tokens", cost);
  for (std::size_t s = 0; s < rate.size(); ++s) {
    const double y = legend + 18 * static_cast<double>(s);
    out += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{:.1f}\" width=\"14\" height=\"4\" fill=\"{}\"/>"
        "<text x=\"{:.0f}\" y=\"{:.1f}\">{}</text>\n",
        kLeft, y - 6, kColours[s % kColours.size()], kLeft + 22, y, escaped(rate[s].name));
  }
  return out + "</svg>\n";
}

}  // namespace rehearse::sim
