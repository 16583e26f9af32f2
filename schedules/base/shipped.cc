// SPDX-License-Identifier: Apache-2.0
#include "schedules/base/shipped.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <vector>

#include "schedules/base/files.h"
#include "schedules/base/json_reader.h"

namespace rehearse {
namespace {

// "DGX-H100" -> dgx, h100
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) {
      words.back() += static_cast<char>(std::tolower(letter));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += word;
  return text;
}

bool holds_all(const std::vector<std::string>& words, const std::vector<std::string>& some) {
  return std::ranges::all_of(
      some, [&](const std::string& word) { return std::ranges::find(words, word) != words.end(); });
}

// Shipped ids whose words hold all of these.
std::vector<std::string> ids_with(const std::vector<std::string>& words, std::string_view folder) {
  std::vector<std::string> ids;
  for (const std::string& id : shipped_names(folder)) {
    if (!words.empty() && holds_all(words_of(id), words)) ids.push_back(id);
  }
  return ids;
}

}  // namespace

std::optional<std::string> meant_id(std::string_view name, std::string_view folder) {
  if (name.size() > 256 || name.find('/') != std::string_view::npos) return {};
  if (name.ends_with(".json")) name.remove_suffix(5);
  const std::vector<std::string> asked = words_of(name);
  if (asked.empty()) return {};
  struct Candidate {
    std::size_t words = 0;
    bool other = false;  // not the vendor's own
    std::string id;
  };
  std::vector<Candidate> found;
  for (const std::string& id : shipped_names(folder)) {
    if (joined(words_of(id)) == joined(asked)) return id;
  }
  for (const std::string& id : ids_with(asked, folder)) {
    const std::vector<std::string> words = words_of(id);
    found.push_back({words.size(), words.front() != "dgx", id});
  }
  const auto less = [](const Candidate& a, const Candidate& b) {
    return a.words != b.words ? a.words < b.words : a.other < b.other;
  };
  std::ranges::stable_sort(found, less);
  if (found.empty() || (found.size() > 1 && !less(found[0], found[1]))) return {};
  return found.front().id;
}

std::optional<std::string> find_meant_file(std::string_view name, std::string_view from,
                                           std::string_view folder) {
  if (auto found = find_file(name, from, folder)) return found;
  const std::optional<std::string> id = meant_id(name, folder);
  return id ? find_file(*id, from, folder) : std::nullopt;
}

std::string no_such_file(std::string_view name, std::string_view folder) {
  std::string text = "no such file: " + json_excerpt(name);
  std::error_code none;
  if (std::filesystem::is_directory(name, none)) return text + ", which is a folder";
  const std::string all = "; rehearse list " + std::string(folder) + " has all";
  if (const auto meant = ids_with(words_of(name), folder); meant.size() > 1) {
    constexpr std::size_t kMost = 4;
    text += "; it may mean ";
    for (std::size_t i = 0; i < std::min(meant.size(), kMost); ++i) {
      text += (i == 0 ? "" : ", ") + meant[i];
    }
    return text + (meant.size() > kMost ? ", ..." : "") + all;
  }
  const std::vector<std::string> ids = shipped_names(folder);
  const std::string id = stem_of(name).substr(0, 64);
  const std::vector<std::string_view> known(ids.begin(), ids.end());
  const std::string best(nearest(id, known));
  if (best.empty()) return text;
  const bool near = 2 * edit_distance(id, best) <= static_cast<std::int32_t>(best.size());
  return text + (near ? "; the nearest shipped one is " + best : "") + all;
}

}  // namespace rehearse
