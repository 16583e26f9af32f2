// SPDX-License-Identifier: Apache-2.0
// Prints how often the truth lay within the band, source by source, each judged by the others, and
// what every input of the band is worth: two tables for docs/accuracy.md (bench/errors.py).
#include <fmt/format.h>

#include <cstdio>

#include "sim/band/coverage.h"

using namespace rehearse;
using namespace rehearse::sim;

namespace {

std::string percent(double value) {
  return fmt::format("{:.1f} %", 100 * value);
}

void print_sources(const std::vector<SourceCoverage>& sources) {
  fmt::print(
      "| source | steps | within the band | faster, slower than it | half-width, median |\n"
      "|---|--:|--:|--:|--:|\n");
  for (const SourceCoverage& of : sources) {
    fmt::print("| `{}` | {} | {} | {}, {} | {} |\n", of.source, of.cases, percent(of.covered()),
               of.below, of.above, percent(of.half_width));
  }
  const MeanCoverage mean = mean_coverage(sources, kFewestSteps);
  fmt::print("| **mean of the {} with at least {} steps** | | **{}** | least {} | **{}** |\n\n",
             mean.sources, kFewestSteps, percent(mean.covered), percent(mean.least),
             percent(mean.half_width));
}

void print_row(const std::string& name, const ErrorTable& table) {
  const MeanCoverage mean = mean_coverage(coverage(table), kFewestSteps);
  fmt::print("| {} | {} | {} | {} | {:.1f} |\n", name, percent(mean.covered), percent(mean.least),
             percent(mean.half_width), 100 * mean.score);
}

}  // namespace

int main() {
  const Result<ErrorTable> read = shipped_error_table();
  if (!read) {
    std::fprintf(stderr, "%s\n", read.error().message.c_str());
    return 2;
  }
  const ErrorTable& table = read.value();
  print_sources(coverage(table));
  fmt::print(
      "| without | coverage, mean | least | half-width, median | score (smaller is better) |\n"
      "|---|--:|--:|--:|--:|\n");
  print_row("nothing left out", table);
  for (const char* feature : {"gpu", "precision", "runtime", "attention", "tp", "pp", "cp", "zero3",
                              "experts", "host_bound", "learned_routing", "assumed_network",
                              "blocked_host", "wide_shards", "network_share", "memory_fill"}) {
    print_row(fmt::format("`{}`", feature), without_feature(table, feature));
  }
  ErrorTable changed = table;
  changed.unseen = 0;
  print_row("widening for what nobody measured", changed);
  for (const double difference : {0.1, 0.2, 0.5, 1.0}) {
    changed = table;
    changed.rule.difference = difference;
    print_row(
        fmt::format("a difference counts {} instead of {}", difference, table.rule.difference),
        changed);
  }
  return 0;
}
