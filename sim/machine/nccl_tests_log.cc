// SPDX-License-Identifier: Apache-2.0
#include "sim/machine/nccl_tests_log.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "schedules/base/json_reader.h"

namespace rehearse::sim {
namespace {

// Bus bandwidth over the algorithm's, for n ranks: a (n - 1) / n, or 1.
enum class Factor : std::uint8_t { One, Part, Twice };
struct Program {
  std::string_view name;  // NAME_perf
  CollectiveOp op;
  Factor factor;
};
constexpr std::array<Program, 7> kPrograms{{
    {"all_reduce", CollectiveOp::AllReduce, Factor::Twice},
    {"all_gather", CollectiveOp::AllGather, Factor::Part},
    {"reduce_scatter", CollectiveOp::ReduceScatter, Factor::Part},
    {"alltoall", CollectiveOp::AllToAll, Factor::Part},
    {"broadcast", CollectiveOp::Broadcast, Factor::One},
    {"reduce", CollectiveOp::Reduce, Factor::One},
    {"sendrecv", CollectiveOp::SendRecv, Factor::One},
}};
constexpr double kRounding = 0.006;  // [GB/s] of a bandwidth that is printed with two decimals
constexpr std::int64_t kMostBytes = 1LL << 50;
constexpr double kMostMicroseconds = 1e10;

double factor_of(Factor factor, std::int32_t ranks) {
  const double part = static_cast<double>(ranks - 1) / ranks;
  return factor == Factor::One ? 1 : factor == Factor::Part ? part : 2 * part;
}

std::vector<std::string_view> words_of_log(std::string_view line) {
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while (at < line.size()) {
    const std::size_t begin = line.find_first_not_of(" \t\r", at);
    if (begin == std::string_view::npos) break;
    at = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, at - begin));
  }
  return words;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

// The program that a line names: "all_reduce_perf", "./alltoall_perf_mpi".
const Program* program_in(std::string_view line) {
  for (std::size_t at = line.find("_perf"); at != std::string_view::npos;
       at = line.find("_perf", at + 1)) {
    std::size_t begin = at;
    while (begin > 0 &&
           (line[begin - 1] == '_' || (line[begin - 1] >= 'a' && line[begin - 1] <= 'z'))) {
      --begin;
    }
    const auto* found =
        std::ranges::find(kPrograms, line.substr(begin, at - begin), &Program::name);
    if (found != kPrograms.end()) return found;
  }
  return nullptr;
}

class Log {
 public:
  Log(std::string_view text, const std::string& path) : text_(text), path_(path) {}

  Result<NcclTestsLog> read() {
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      ++line_;
      if (const Result<> read = one(text_.substr(at, end - at)); !read) return read.error();
      at = end + 1;
    }
    if (const Result<> finished = finish_table(); !finished) return finished.error();
    if (out_.points.empty()) return Error{path_ + ": no table of nccl-tests stands in it"};
    return std::move(out_);
  }

 private:
  Error wrong(std::int32_t line, const std::string& what) const {
    return json_error(path_, line, "", what);
  }

  Result<> one(std::string_view line) {
    if (const Program* program = program_in(line)) {
      if (const Result<> finished = finish_table(); !finished) return finished;
      const bool concluded = line.find("concluded") != std::string_view::npos;
      program_ = concluded ? nullptr : program;
    }
    const std::vector<std::string_view> words = words_of_log(line);
    if (words.empty()) return {};
    if (words[0] == "#" && words.size() > 1 && words[1] == "Using") {
      if (const Result<> finished = finish_table(); !finished) return finished;
      ranks_ = 0;
      hosts_.clear();
    } else if (words[0] == "#" && words.size() > 6 && words[1] == "Rank") {
      return rank(words);
    } else if (words[0] == "#" && words.size() > 1 && words[1] == "size") {
      if (const Result<> finished = finish_table(); !finished) return finished;
      columns_.assign(words.begin() + 1, words.end());
    } else if (!columns_.empty() &&
               words[0].find_first_not_of("0123456789") == std::string_view::npos) {
      return row(words);
    }
    return {};
  }

  // # Rank 0 Group 0 Pid 6899 on node-1 device 0 [0000:04:00] NVIDIA H100 80GB HBM3
  Result<> rank(const std::vector<std::string_view>& words) {
    ++ranks_;
    std::string host;
    for (std::size_t i = 2; i + 1 < words.size(); ++i) {
      if (words[i] == "on") host = words[i + 1];
      if (!words[i].starts_with('[') || !words[i].ends_with(']')) continue;
      const char* begin = words[i + 1].data();
      std::string name(begin,
                       static_cast<std::size_t>(words.back().data() + words.back().size() - begin));
      if (std::ranges::find(out_.gpu_names, name) == out_.gpu_names.end()) {
        out_.gpu_names.push_back(std::move(name));
      }
      break;
    }
    out_.gpus_per_node = std::max(out_.gpus_per_node, ++hosts_[host]);
    return {};
  }

  Result<> row(const std::vector<std::string_view>& words) {
    const auto column = [&](std::string_view name) -> std::optional<double> {
      const auto found = std::ranges::find(columns_, name);
      const auto at = static_cast<std::size_t>(found - columns_.begin());
      return at < columns_.size() && at < words.size() ? number<double>(words[at]) : std::nullopt;
    };
    const auto bytes = number<std::int64_t>(words[0]);
    const auto time = column("time"), algorithm = column("algbw"), bus = column("busbw");
    if (!bytes || !time || !algorithm || !bus) {
      return wrong(line_, "a row without size, time, algbw and busbw");
    }
    if (*bytes > kMostBytes || !(*time >= 0) || *time > kMostMicroseconds) {
      return wrong(line_, "a size or a time that no machine has");
    }
    // Sizes below one element of each rank have none.
    if (*bytes > 0 && *time > 0) rows_.push_back({line_, *bytes, *time, *algorithm, *bus});
    return {};
  }

  // The rows of a table, once all are known: the large ones say which collective it was.
  Result<> finish_table() {
    const std::vector<Row> rows = std::move(rows_);
    rows_.clear();
    if (rows.empty()) return {};
    if (ranks_ < 2) {
      return wrong(rows[0].line, "the lines \"#  Rank ...\" are missing: how many GPUs took part?");
    }
    const auto is_of = [&](const Row& row, const Program& program) {
      const double factor = factor_of(program.factor, ranks_);
      return std::abs(row.bus - factor * row.algorithm) <= kRounding * (1 + factor);
    };
    const Program* program = program_;
    if (program == nullptr) {  // of two ranks all factors but an all-gather's are 1
      const auto says = [&](const Row& row) {
        return ranks_ > 2 && row.algorithm >= 1 && is_of(row, kPrograms[0]);
      };
      if (std::ranges::any_of(rows, says)) program = kPrograms.data();
    }
    if (program == nullptr) {
      return wrong(rows[0].line,
                   "which collective this is nobody says: keep the line that names the program "
                   "(all_gather_perf, ...)");
    }
    for (const Row& row : rows) {
      if (row.algorithm >= 1 && !is_of(row, *program)) {
        return wrong(row.line, "bus bandwidth over algorithm bandwidth is not that of " +
                                   std::string(program->name) + " among " + std::to_string(ranks_) +
                                   " ranks");
      }
      out_.points.push_back({.op = program->op,
                             .ranks = ranks_,
                             .nodes = static_cast<std::int32_t>(hosts_.size()),
                             .bytes = row.bytes,
                             .time_us = row.time_us});
    }
    return {};
  }

  struct Row {
    std::int32_t line;
    std::int64_t bytes;
    double time_us, algorithm, bus;
  };

  std::string_view text_;
  const std::string& path_;
  std::int32_t line_ = 0, ranks_ = 0;
  std::map<std::string, std::int32_t> hosts_;  // ranks of each
  std::vector<std::string> columns_;
  std::vector<Row> rows_;             // of the table at hand
  const Program* program_ = nullptr;  // that was named last
  NcclTestsLog out_;
};

}  // namespace

Result<NcclTestsLog> read_nccl_tests_log(std::string_view text, const std::string& path) {
  return Log(text, path).read();
}

}  // namespace rehearse::sim
