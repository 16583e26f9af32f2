// SPDX-License-Identifier: Apache-2.0
// Inputs that are nearly files: seeds with a few edits, of text (cells, digits, words) or of bytes
// (bits, integers). Seeded, so that a failure comes back.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rehearse::testing {

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds, std::uint64_t seed = 20260721)
      : seeds_(std::move(seeds)), random_(seed) {}

  std::string next() {
    std::string text = seeds_[below(seeds_.size())];
    for (std::size_t edits = below(4); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  // A run of characters: often one cell.
  std::pair<std::size_t, std::size_t> cell(const std::string& text) {
    const std::size_t at = below(text.size());
    const std::size_t begin = text.find_last_of(",\n\"", at);
    const std::size_t from = begin == std::string::npos ? 0 : begin + 1;
    const std::size_t end = text.find_first_of(",\n\"", from);
    return {from, end == std::string::npos ? text.size() : end};
  }
  void edit(std::string& text) {
    static constexpr std::string_view kBytes =
        "0123456789FBIWR_SENDRCV.,;:()[]{}<>\"\n\r \t-+exn\\\0\xFF";
    // Where readers have their limits.
    static constexpr std::array<std::string_view, 22> kNumbers{"0",
                                                               "-1",
                                                               "1",
                                                               "2",
                                                               "1e308",
                                                               "-1e308",
                                                               "1e-308",
                                                               "1e9",
                                                               "1e-9",
                                                               "0.5",
                                                               "65536",
                                                               "2147483647",
                                                               "2147483648",
                                                               "4294967296",
                                                               "9007199254740993",
                                                               "9223372036854775807",
                                                               "9223372036854775808",
                                                               "-9223372036854775808",
                                                               "1e400",
                                                               "null",
                                                               "true",
                                                               "[]"};
    if (text.empty()) text = "0F0";
    switch (below(9)) {
      case 0:
        text[below(text.size())] = kBytes[below(kBytes.size())];
        break;
      case 1:
        text.insert(below(text.size()), 1, kBytes[below(kBytes.size())]);
        break;
      case 2:
        text.erase(below(text.size()), 1 + below(8));
        break;
      case 3:
        text.resize(below(text.size()));
        break;
      case 4: {  // two cells change places: the order is what proofs are about
        const auto [a, a_end] = cell(text);
        const auto [b, b_end] = cell(text);
        if (a_end > b || a >= b) break;
        const std::string first = text.substr(a, a_end - a), second = text.substr(b, b_end - b);
        text.replace(b, second.size(), first);
        text.replace(a, first.size(), second);
        break;
      }
      case 5: {  // a cell is doubled or lost
        const auto [begin, end] = cell(text);
        if (below(2) == 0) {
          text.insert(begin, text.substr(begin, end - begin) + ",");
        } else {
          text.erase(begin, end - begin);
        }
        break;
      }
      case 6: {  // a whole number becomes another
        const std::size_t at = text.find_first_of("0123456789", below(text.size()));
        if (at == std::string::npos) break;
        const std::size_t end =
            std::min(text.find_first_not_of("0123456789.eE+-", at), text.size());
        text.replace(at, end - at, kNumbers[below(kNumbers.size())]);
        break;
      }
      case 7: {  // four bytes as an integer, or one bit
        const std::size_t at = below(text.size());
        if (text.size() < at + 4 || below(2) == 0) {
          text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
          break;
        }
        static constexpr std::array<std::uint32_t, 8> kIntegers{
            0, 1, 0xFFFFFFFFU, 0x7FFFFFFFU, 0x80000000U, 0xFFFF, 0x10000, 0x1000000};
        const std::uint32_t value = kIntegers[below(kIntegers.size())];
        std::memcpy(text.data() + at, &value, 4);
        break;
      }
      default: {  // a digit becomes another
        const std::size_t at = text.find_first_of("0123456789", below(text.size()));
        if (at != std::string::npos) text[at] = static_cast<char>('0' + below(10));
      }
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_;
};

}  // namespace rehearse::testing
