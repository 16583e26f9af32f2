// SPDX-License-Identifier: Apache-2.0
// NCCL's RAS text (ncclras, or port 28028 of a job): communicators whose ranks have launched
// different numbers of operations, ranks that do not answer. Lines: src/ras/client_support.cc of
// NVIDIA/nccl; they differ a little from version to version, so they are told by their words.
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "viz/hang/hang.h"

namespace rehearse::viz {
namespace {

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<std::int64_t> number_at(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || value < 0 || value > INT64_C(1) << 40) return {};
  return value;
}
std::optional<std::int64_t> number_after(std::string_view text, std::string_view words) {
  const std::size_t at = text.find(words);
  if (at == std::string_view::npos) return {};
  return number_at(text.substr(at + words.size()));
}

// Of one communicator.
struct Communicator {
  std::string name;  // "#0-0 (27a079b828ff1a75)"
  std::vector<std::int32_t> missing;
  std::string op;  // "AllReduce", where it says which
  // By operation, how many ranks have launched it and no more, and which, where it lists them.
  struct Launched {
    std::int64_t ranks = 0;
    std::vector<std::int32_t> listed;
  };
  std::map<std::int64_t, Launched> launched;
};

class RasReader {
 public:
  explicit RasReader(std::string_view text) : text_(text) {}

  std::vector<Communicator> read() {
    while (!text_.empty()) {
      const std::size_t end = std::min(text_.find('\n'), text_.size());
      line(trimmed(text_.substr(0, end)));
      text_.remove_prefix(std::min(end + 1, text_.size()));
    }
    return std::move(all_);
  }

 private:
  void line(std::string_view words) {
    if (words.empty()) {
      current_ = nullptr;
      counted_ = nullptr;
      return;
    }
    if (words.starts_with('#')) return begin(words);
    if (current_ == nullptr) return;
    if (const auto at = words.find("have different "); at != std::string_view::npos) {
      const std::string_view rest = words.substr(at + 15);
      const std::size_t end = rest.find(" operation");
      current_->op = end == std::string_view::npos ? "" : std::string(rest.substr(0, end));
      return;
    }
    const bool none = words.find("not launched any") != std::string_view::npos;
    const auto operation =
        none ? std::optional<std::int64_t>(0) : number_after(words, "launched up to operation ");
    if (operation && words.starts_with("Rank ")) {
      auto& launched = current_->launched[*operation];
      ++launched.ranks;
      list(launched.listed, words.substr(5));
    } else if (operation) {
      counted_ = &current_->launched[*operation];
      counted_->ranks += number_at(words).value_or(0);
    } else if (const auto missing = number_after(words, "missing rank: ")) {
      current_->missing.push_back(static_cast<std::int32_t>(*missing));
    } else if (words.starts_with("The missing ranks: ")) {
      several(words.substr(19));
    } else if (words.starts_with("Rank ")) {
      list(counted_ != nullptr ? counted_->listed : current_->missing, words.substr(5));
    } else {
      counted_ = nullptr;
    }
  }

  // "#0-0 (27a079b828ff1a75) MISMATCH"
  void begin(std::string_view words) {
    const std::string name(words.substr(0, words.find_last_of(' ')));
    auto found = std::ranges::find(all_, name, &Communicator::name);
    if (found == all_.end()) {
      all_.push_back({.name = name});
      found = all_.end() - 1;
    }
    current_ = &*found;
    counted_ = nullptr;
  }
  static void list(std::vector<std::int32_t>& ranks, std::string_view words) {
    if (const auto rank = number_at(words)) ranks.push_back(static_cast<std::int32_t>(*rank));
  }
  void several(std::string_view words) {
    while (!words.empty()) {
      list(current_->missing, words);
      const std::size_t comma = words.find(',');
      if (comma == std::string_view::npos) return;
      words = trimmed(words.substr(comma + 1));
    }
  }

  std::string_view text_;
  std::vector<Communicator> all_;
  Communicator* current_ = nullptr;
  Communicator::Launched* counted_ = nullptr;
};

std::string list_of(const std::vector<std::int32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

bool is_ras(std::string_view text) {
  return text.find("Communicators...") != std::string_view::npos ||
         (text.find("Ranks") != std::string_view::npos &&
          text.find("per comm") != std::string_view::npos);
}

Result<Hang> find_hang_in_ras(std::string_view text, const std::string& path) {
  if (!is_ras(text)) return Error{path + ": no text of NCCL's RAS (ncclras)"};
  const std::vector<Communicator> all = RasReader(text).read();
  Hang hang{.sentence =
                "RAS sees nothing wrong: every communicator's ranks answer and have "
                "launched the same operations."};
  // A rank that does not answer comes before one that is behind.
  for (const Communicator& one : all) {
    if (one.missing.empty()) continue;
    hang.kind = HangKind::Dead;
    hang.culprits = one.missing;
    for (const std::int32_t rank : one.missing)
      hang.ranks.push_back({.rank = rank, .dumped = false});
    hang.sentence = "Of communicator " + one.name + " " + list_of(one.missing) +
                    (one.missing.size() == 1 ? " does" : " do") +
                    " not answer: stopped, dead, or its host is gone; the others wait for it.";
    return hang;
  }
  for (const Communicator& one : all) {
    if (one.launched.size() < 2) continue;
    const auto& [least, behind] = *one.launched.begin();
    const auto& [most, ahead] = *one.launched.rbegin();
    hang.kind = HangKind::Missing;
    hang.culprits = behind.listed;
    for (const std::int32_t rank : behind.listed) {
      hang.ranks.push_back(
          {.rank = rank, .call = {.group = one.name, .sequence = least, .op = one.op}});
    }
    const std::string who =
        behind.listed.empty() ? std::to_string(behind.ranks) + " ranks" : list_of(behind.listed);
    hang.sentence = "Of communicator " + one.name + " " + who + " launched " +
                    (one.op.empty() ? "operations" : one.op) + " up to " + std::to_string(least) +
                    ", " + std::to_string(ahead.ranks) + " ranks up to " + std::to_string(most) +
                    ": if that does not change when RAS is asked again, these wait for " + who +
                    ".";
    return hang;
  }
  return hang;
}

}  // namespace rehearse::viz
